import { useInfiniteQuery } from '@tanstack/react-query'
import { RotateCcw } from 'lucide-react'
import { useState } from 'react'
import { callMutation, type Output } from '../../api.ts'
import { Badge, type BadgeKind } from '../../components/badge.tsx'
import { Button } from '../../components/button.tsx'
import { Code } from '../../components/code.tsx'
import { Dialog } from '../../components/dialog.tsx'
import { More } from '../../components/more.tsx'
import { Loaded, Rows } from '../../components/page.tsx'
import { now } from '../../lib/clock.ts'
import { duration, moment } from '../../lib/format.ts'
import { everyMs, pages, useAction } from '../../queries.ts'
import { settings } from '../../texts/settings.ts'
import { texts } from '../../texts.ts'
import type { Webhook } from './webhooks.tsx'

const t = settings.webhooks

type Delivery = Output<'webhooks.deliveries'>['deliveries'][number]
type Status = Delivery['status']

const KINDS: Readonly<Record<Status, BadgeKind>> = { pending: 'accent', delivered: 'good', failed: 'bad' }
const DAY = 86_400_000

/** The events that were sent to a webhook, with each attempt. */
export function Deliveries({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
  const [status, setStatus] = useState<Status | ''>('')
  const list = useInfiniteQuery({
    ...pages('webhooks.deliveries', { id: webhook.id, ...(status && { status }) }),
    ...everyMs(3_000),
  })
  const options = { changes: ['webhooks.deliveries'], done: t.replayed }
  const replay = useAction(
    (deliveryId: string) => callMutation('webhooks.replayDelivery', { id: webhook.id, deliveryId }),
    options,
  )
  const replayAll = useAction(
    () => callMutation('webhooks.replay', { id: webhook.id, since: new Date(now() - DAY).toISOString() }),
    options,
  )
  return (
    <Dialog open as="wide" onClose={onClose} title={t.deliveries} description={webhook.description || webhook.url}>
      <div className="mb-3 flex flex-wrap items-center justify-between gap-2">
        <select
          aria-label={t.status}
          className="field w-auto"
          value={status}
          onChange={({ target }) => setStatus(target.value as Status | '')}
        >
          <option value="">{texts.all}</option>
          {Object.entries(t.statuses).map(([value, label]) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </select>
        <Button
          icon={RotateCcw}
          disabled={!webhook.enabled}
          busy={replayAll.isPending}
          onClick={() => replayAll.mutate(undefined)}
        >
          {t.replayAll}
        </Button>
      </div>
      <Loaded query={list} lines={3}>
        {({ pages: read }) => {
          const deliveries = read.flatMap((page) => page.deliveries)
          if (!deliveries.length) return <p className="text-soft">{t.noDeliveries}</p>
          return (
            <Rows>
              {deliveries.map((delivery) => (
                <li key={delivery.id} className="px-4 py-2.5">
                  <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
                    <Badge kind={KINDS[delivery.status]}>{t.statuses[delivery.status]}</Badge>
                    <code className="font-mono text-xs">{delivery.event}</code>
                    <span className="ml-auto text-soft text-xs">{moment(delivery.createdAt)}</span>
                    <Button
                      small
                      disabled={!webhook.enabled || replay.isPending}
                      onClick={() => replay.mutate(delivery.id)}
                    >
                      {t.replay}
                    </Button>
                  </div>
                  {delivery.nextAttemptAt && (
                    <p className="text-soft text-xs">
                      {t.nextAttempt}: {moment(delivery.nextAttemptAt)}
                    </p>
                  )}
                  {delivery.attempts.length > 0 && (
                    <details className="mt-1">
                      <summary className="text-soft text-xs">{t.attempts(delivery.attempts.length)}</summary>
                      <ol className="mt-1 space-y-2">
                        {delivery.attempts.map((attempt) => (
                          <li key={attempt.at}>
                            <p className="text-xs" dir="auto">
                              {moment(attempt.at)} · {attempt.status ?? t.noAnswer} · {duration(attempt.durationMs)}
                              {attempt.error && <span className="text-danger"> · {attempt.error}</span>}
                            </p>
                            {attempt.response && <Code text={attempt.response} className="mt-1" />}
                          </li>
                        ))}
                      </ol>
                    </details>
                  )}
                </li>
              ))}
            </Rows>
          )
        }}
      </Loaded>
      <More query={list} />
    </Dialog>
  )
}

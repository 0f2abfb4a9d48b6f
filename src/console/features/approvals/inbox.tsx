import { useInfiniteQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { BellRing, CircleCheckBig } from 'lucide-react'
import { useState } from 'react'
import { Badge, kindOf } from '../../components/badge.tsx'
import { Button } from '../../components/button.tsx'
import { Code } from '../../components/code.tsx'
import { More } from '../../components/more.tsx'
import { Empty, Loaded, Page } from '../../components/page.tsx'
import { Tabs } from '../../components/tabs.tsx'
import { Ago } from '../../components/time.tsx'
import { toast } from '../../components/toast.tsx'
import { moment, pretty } from '../../lib/format.ts'
import { pages } from '../../queries.ts'
import { approvals as t } from '../../texts/approvals.ts'
import { texts } from '../../texts.ts'
import { usePeopleNames } from '../agents/names.ts'
import { useAuthors } from '../chat/authors.ts'
import { type Approval, Decision } from './decision.tsx'

const shared = texts.approvals

type Status = Approval['status']

/** Tool calls that wait for a decision, and decided ones. */
export function Inbox() {
  const navigate = useNavigate({ from: '/approvals' })
  const { status: wanted = '' } = useSearch({ from: '/approvals' })
  const status: Status = Object.hasOwn(shared.states, wanted) ? (wanted as Status) : 'pending'
  const list = useInfiniteQuery(pages('approvals.list', { status }))
  return (
    <Page title={shared.title} actions={<Notify />}>
      <Tabs
        label={shared.title}
        tabs={shared.states}
        value={status}
        onChange={(next) => void navigate({ search: { status: next }, replace: true })}
      >
        <Loaded query={list}>
          {({ pages: read }) => {
            const approvals = read.flatMap((page) => page.approvals)
            if (!approvals.length) {
              return status === 'pending' ? (
                <Empty icon={CircleCheckBig} title={t.emptyTitle} text={t.emptyText} />
              ) : (
                <Empty icon={CircleCheckBig} title={t.noneOf} />
              )
            }
            return (
              <ul className="space-y-4">
                {approvals.map((approval) => (
                  <li key={approval.id}>
                    <About approval={approval} />
                    {approval.status === 'pending' ? <Decision approval={approval} /> : <Decided approval={approval} />}
                  </li>
                ))}
              </ul>
            )
          }}
        </Loaded>
        <More query={list} />
      </Tabs>
    </Page>
  )
}

function About({ approval }: { approval: Approval }) {
  const asker = useAuthors([approval])(approval)
  return (
    <p className="flex flex-wrap items-center gap-x-3 gap-y-1 text-soft">
      <bdi className="font-medium text-ink">{approval.agentName ?? texts.chat.agent}</bdi>
      <Link
        to="/chats/$chatId"
        params={{ chatId: approval.chatId }}
        className="text-accent underline underline-offset-2"
      >
        <bdi>{approval.chatTitle ?? t.inChat}</bdi>
      </Link>
      <Ago at={approval.createdAt} />
      {approval.status === 'pending' && (
        <span>
          {t.until} <Ago at={approval.expiresAt} />
        </span>
      )}
      {asker !== null && <span dir="auto">{t.forPerson(asker)}</span>}
    </p>
  )
}

/** A call about which somebody has decided, or nobody in time. */
function Decided({ approval }: { approval: Approval }) {
  const { status, tool, mcpName, decidedBy, decidedAt, editedBy, editedInput, input, reason } = approval
  const nameOf = usePeopleNames([decidedBy, editedBy].flatMap((id) => id ?? []))
  const decider = decidedBy && nameOf(decidedBy)
  const editor = editedBy && nameOf(editedBy)
  return (
    <div className="mt-1 rounded-xl border border-line px-4 py-3">
      <p className="flex flex-wrap items-center gap-2">
        <Badge kind={kindOf(status)}>{shared.states[status]}</Badge>
        <bdi className="font-mono text-xs">{tool}</bdi>
        {mcpName && (
          <span className="text-soft">
            {shared.of} <bdi>{mcpName}</bdi>
          </span>
        )}
        {decider && decidedAt && (
          <span className="text-soft" dir="auto">
            {t.decidedBy(decider, moment(decidedAt))}
          </span>
        )}
      </p>
      {reason && (
        <p className="mt-1 text-soft" dir="auto">
          {reason}
        </p>
      )}
      <details className="mt-1">
        <summary className="text-soft text-xs">{editor ? t.inputOf(editor) : texts.chat.input}</summary>
        <Code text={pretty(editedInput ?? input)} className="mt-1" isWrapped />
      </details>
    </div>
  )
}

/** Turns the browser's notifications on. */
function Notify() {
  const [permission, setPermission] = useState(() => ('Notification' in window ? Notification.permission : 'denied'))
  if (permission === 'granted') {
    return (
      <span className="flex items-center gap-1.5 text-soft">
        <BellRing size={15} aria-hidden />
        {t.notifyOn}
      </span>
    )
  }
  return (
    <Button
      icon={BellRing}
      onClick={() => {
        if (permission === 'denied' || !('Notification' in window)) return toast(t.notifyRefused, 'bad')
        void Notification.requestPermission().then(setPermission)
      }}
    >
      {t.notify}
    </Button>
  )
}

import { useInfiniteQuery } from '@tanstack/react-query'
import { Ellipsis, KeyRound, Pencil, Send, Trash2, Webhook as WebhookIcon } from 'lucide-react'
import { useState } from 'react'
import { callMutation, type Output } from '../../api.ts'
import { Badge } from '../../components/badge.tsx'
import { Button, IconButton } from '../../components/button.tsx'
import { Confirm, Dialog } from '../../components/dialog.tsx'
import { useEdits } from '../../components/edits.ts'
import { Check, Select, TextArea, TextField } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { Menu, MenuItem, MenuLine } from '../../components/menu.tsx'
import { More } from '../../components/more.tsx'
import { Empty, ListHead, Loaded, Rows } from '../../components/page.tsx'
import { useShowSecret } from '../../components/secret.tsx'
import { useOnce } from '../../once.ts'
import { pages, readNow, useAction, WATCHED } from '../../queries.ts'
import { useIsAdmin } from '../../session.ts'
import { settings } from '../../texts/settings.ts'
import { texts } from '../../texts.ts'
import { Deliveries } from './deliveries.tsx'

const t = settings.webhooks

export type Webhook = Output<'webhooks.list'>['webhooks'][number]
type Format = Webhook['format']

type Open = { of: Webhook | null; what: 'form' | 'deliveries' | 'rotate' | 'delete' }

/** Chats such as Slack have no secret. */
function useShowWebhookSecret() {
  const show = useShowSecret()
  return ({ secret }: { secret: string | null }) =>
    secret !== null && show({ title: t.secret, text: t.secretText, secret })
}

/** The addresses that receive the events of the organization. */
export function Webhooks() {
  const isAdmin = useIsAdmin()
  const [open, setOpen] = useState<Open | null>(null)
  const show = useShowWebhookSecret()
  const list = useInfiniteQuery({ ...pages('webhooks.list', {}), ...WATCHED, enabled: isAdmin })
  const changes = ['webhooks.']
  const remove = useAction((id: string) => callMutation('webhooks.delete', { id }), { changes, done: texts.deleted })
  const rotate = useAction(async (id: string) => show(await callMutation('webhooks.rotate', { id })), {
    changes,
  })
  const test = useAction((webhook: Webhook) => callMutation('webhooks.test', { id: webhook.id }), {
    changes,
    done: t.tested,
    // The person may have opened another dialog meanwhile.
    onDone: (_, webhook) => setOpen((now) => now ?? { of: webhook, what: 'deliveries' }),
  })
  if (!isAdmin) return <p className="text-soft">{settings.onlyAdmins}</p>
  const close = () => setOpen(null)
  const id = open?.of?.id ?? ''
  return (
    <>
      <ListHead help={t.help} action={t.new} onAdd={() => setOpen({ of: null, what: 'form' })} />
      <Loaded query={list} lines={2}>
        {({ pages: read }) => {
          const webhooks = read.flatMap((page) => page.webhooks)
          if (!webhooks.length) return <Empty icon={WebhookIcon} title={t.emptyTitle} text={t.emptyText} />
          return (
            <Rows>
              {webhooks.map((webhook) => (
                <li key={webhook.id} className="flex flex-wrap items-center gap-x-2 gap-y-1 px-4 py-2.5">
                  <div className="min-w-0 flex-1 basis-48">
                    <p className="truncate font-medium" dir="auto">
                      {webhook.description || webhook.url}
                    </p>
                    <p className="truncate text-soft text-xs" title={webhook.events.join(', ')}>
                      {webhook.description && `${webhook.url} · `}
                      {webhook.events.join(', ')}
                    </p>
                    {webhook.disabledReason && <p className="text-danger text-xs">{webhook.disabledReason}</p>}
                  </div>
                  <Health webhook={webhook} />
                  <Button small onClick={() => setOpen({ of: webhook, what: 'deliveries' })}>
                    {t.deliveries}
                  </Button>
                  <Menu trigger={<IconButton label={t.menu(webhook.description || webhook.url)} icon={Ellipsis} />}>
                    <MenuItem icon={Send} disabled={!webhook.enabled} onSelect={() => test.mutate(webhook)}>
                      {t.test}
                    </MenuItem>
                    <MenuItem icon={Pencil} onSelect={() => setOpen({ of: webhook, what: 'form' })}>
                      {texts.edit}
                    </MenuItem>
                    <MenuItem icon={KeyRound} onSelect={() => setOpen({ of: webhook, what: 'rotate' })}>
                      {t.rotate}
                    </MenuItem>
                    <MenuLine />
                    <MenuItem icon={Trash2} danger onSelect={() => setOpen({ of: webhook, what: 'delete' })}>
                      {texts.delete}
                    </MenuItem>
                  </Menu>
                </li>
              ))}
            </Rows>
          )
        }}
      </Loaded>
      <More query={list} />
      {open?.what === 'form' && <WebhookForm webhook={open.of} onClose={close} />}
      {open?.what === 'deliveries' && open.of && <Deliveries webhook={open.of} onClose={close} />}
      {open?.what === 'rotate' && (
        <Confirm
          onClose={close}
          title={t.rotateTitle}
          text={t.rotateText}
          action={t.rotate}
          onConfirm={() => rotate.mutateAsync(id)}
        />
      )}
      {open?.what === 'delete' && (
        <Confirm
          onClose={close}
          title={t.deleteTitle}
          text={t.deleteText}
          action={texts.delete}
          onConfirm={() => remove.mutateAsync(id)}
        />
      )}
    </>
  )
}

function Health({ webhook: { enabled, failingSince } }: { webhook: Webhook }) {
  if (!enabled) return <Badge>{t.disabled}</Badge>
  return failingSince ? <Badge kind="bad">{t.failing}</Badge> : <Badge kind="good">{t.enabled}</Badge>
}

const LABELS = {
  description: texts.description,
  events: t.events,
  format: t.format,
  enabled: t.enabledLabel,
  includeContent: t.includeContent,
}

const toFields = (webhook: Webhook | null) => ({
  description: webhook?.description ?? '',
  events: webhook?.events.join('\n') ?? 'task.*\nexecution.failed',
  format: webhook?.format ?? ('standard' as Format),
  enabled: webhook?.enabled ?? true,
  includeContent: webhook?.includeContent ?? false,
})

/** Reads patterns, separated by commas or lines. */
const toEvents = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean)

/** Shows the secret of a new webhook, or that it was in an answer that was lost. */
function useShowNewSecret() {
  const show = useShowSecret()
  const showSecret = useShowWebhookSecret()
  return (made: Output<'webhooks.create'>) =>
    made.secret === null && made.webhook.format === 'standard'
      ? show({ title: t.secretLost, text: t.secretLostText, secret: null })
      : showSecret(made)
}

function WebhookForm({ webhook, onClose }: { webhook: Webhook | null; onClose: () => void }) {
  const showNew = useShowNewSecret()
  const once = useOnce()
  const [url, setUrl] = useState('')
  const read = webhook && (async () => toFields((await readNow('webhooks.get', { id: webhook.id })).webhook))
  const { draft, edits, set, check } = useEdits(toFields(webhook), LABELS, read)
  const save = useAction(
    async () => {
      const events = toEvents(draft.events)
      const address = url.trim() && { url: url.trim() }
      if (!webhook) return showNew(await once('webhooks.create', { ...draft, events, url: url.trim() }))
      const { events: edited, ...rest } = edits
      const changes = { ...rest, ...(edited !== undefined && { events }), ...address }
      await check(() => callMutation('webhooks.update', { id: webhook.id, ...changes }))
    },
    { changes: ['webhooks.'], quiet: true, done: texts.saved, onDone: onClose },
  )
  const needsUrl = !webhook || 'format' in edits
  return (
    <Dialog open onClose={onClose} title={webhook ? t.edit : t.new}>
      <Form
        label={webhook ? texts.save : texts.create}
        save={save}
        isReady={!(needsUrl && !url.trim()) && toEvents(draft.events).length > 0}
        onCancel={onClose}
      >
        <TextField
          label={t.url}
          field="url"
          help={webhook ? t.urlKept(webhook.url) : t.urlHelp}
          type="url"
          required={needsUrl}
          maxLength={2000}
          value={url}
          onChange={({ target }) => setUrl(target.value)}
        />
        <TextField
          label={texts.description}
          field="description"
          maxLength={1000}
          value={draft.description}
          onChange={({ target }) => set({ description: target.value })}
        />
        <TextArea
          label={t.events}
          isCode
          field="events"
          help={t.eventsHelp}
          required
          className="font-mono text-xs"
          value={draft.events}
          onChange={({ target }) => set({ events: target.value })}
        />
        <Select
          label={t.format}
          field="format"
          options={Object.entries(t.formats).map(([value, label]) => ({ value, label }))}
          value={draft.format}
          onChange={({ target }) => set({ format: target.value as Format })}
        />
        {(['enabled', 'includeContent'] as const).map((name) => (
          <Check
            key={name}
            label={LABELS[name]}
            checked={draft[name]}
            onChange={(checked) => set({ [name]: checked })}
            className="mb-2"
          />
        ))}
      </Form>
    </Dialog>
  )
}

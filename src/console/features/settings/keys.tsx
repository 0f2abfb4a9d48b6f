import { useInfiniteQuery } from '@tanstack/react-query'
import { KeyRound, Trash2 } from 'lucide-react'
import { useState } from 'react'
import type { Scope } from '../../../auth/scopes.ts'
import { callMutation, type Input, type Output } from '../../api.ts'
import { IconButton } from '../../components/button.tsx'
import { Confirm, Dialog } from '../../components/dialog.tsx'
import { Check, NameField, Select, Ticks } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { More } from '../../components/more.tsx'
import { Empty, ListHead, Loaded, Rows } from '../../components/page.tsx'
import { useShowSecret } from '../../components/secret.tsx'
import { Ago } from '../../components/time.tsx'
import { moment } from '../../lib/format.ts'
import { pages, useAction, WATCHED } from '../../queries.ts'
import { settings } from '../../texts/settings.ts'
import { texts } from '../../texts.ts'

const t = settings.keys

export type Key = Output<'keys.list'>['keys'][number]
type Created = Output<'keys.create'>
/** The defaults of a new key. */
export type NewKeyInput = Omit<Input<'keys.create'>, 'idempotencyKey'>

const DAYS = [7, 30, 90, 365]
type Resource = Scope extends `${infer Name}:${string}` ? Name : never
/** Every resource that has an API. */
const RESOURCES: Readonly<Record<Exclude<Resource, 'budgets'>, true>> = {
  agents: true,
  tasks: true,
  executions: true,
  approvals: true,
  chats: true,
  spaces: true,
  secrets: true,
  missions: true,
  skills: true,
  mcps: true,
  media: true,
  usage: true,
  webhooks: true,
  profile: true,
  keys: true,
  organization: true,
  members: true,
  providers: true,
  audit: true,
}
const SCOPES = ['agents:execute', ...Object.keys(RESOURCES).flatMap((name) => [`${name}:read`, `${name}:write`])]

/** The personal access tokens of the person. */
export function Keys() {
  const [isNew, setIsNew] = useState(false)
  const [doomed, setDoomed] = useState<Key | null>(null)
  const [cascade, setCascade] = useState(false)
  const list = useInfiniteQuery({ ...pages('keys.list', {}), ...WATCHED })
  const revoke = useAction((id: string) => callMutation('keys.delete', { id, ...(cascade && { cascade }) }), {
    changes: ['keys.'],
    done: t.revoked,
  })
  return (
    <>
      <ListHead help={t.help} action={t.new} onAdd={() => setIsNew(true)} />
      <Loaded query={list}>
        {({ pages: read }) => {
          const keys = read.flatMap((page) => page.keys)
          if (!keys.length) return <Empty icon={KeyRound} title={t.emptyTitle} text={t.emptyText} />
          const ask = (key: Key) => {
            setCascade(false)
            setDoomed(key)
          }
          return <KeyRows keys={keys} onRevoke={ask} />
        }}
      </Loaded>
      <More query={list} />
      {isNew && (
        <NewKey
          changes="keys."
          onClose={() => setIsNew(false)}
          create={(input) => callMutation('keys.create', input)}
        />
      )}
      {doomed !== null && (
        <Confirm
          onClose={() => setDoomed(null)}
          title={t.revokeTitle(doomed.name)}
          text={t.revokeText}
          action={t.revoke}
          onConfirm={() => revoke.mutateAsync(doomed.id)}
        >
          <Check label={t.cascade} checked={cascade} onChange={setCascade} className="mb-4" />
        </Confirm>
      )}
    </>
  )
}

const scopesOf = ({ scopes }: Key) => (scopes.includes('*') ? t.everything : scopes.join(', '))

/** Lists keys with their first characters, scopes and expiry. */
export const KeyRows = ({ keys, onRevoke }: { keys: readonly Key[]; onRevoke: (key: Key) => void }) => (
  <Rows>
    {keys.map((key) => (
      <li key={key.id} className="flex flex-wrap items-center gap-x-3 gap-y-1 px-4 py-2.5">
        <div className="min-w-0 flex-1">
          <p className="truncate font-medium" dir="auto">
            {key.name}
          </p>
          <p className="truncate text-soft text-xs" title={scopesOf(key)}>
            <code>{key.preview}</code> · {scopesOf(key)}
          </p>
        </div>
        <p className="order-last basis-full text-soft text-xs sm:order-none sm:basis-auto sm:text-right">
          {t.expires}: {key.expiresAt ? moment(key.expiresAt) : t.never}
          <br />
          {t.lastUsed}: {key.lastUsedAt ? <Ago at={key.lastUsedAt} /> : t.never}
        </p>
        <IconButton label={`${t.revoke} ${key.name}`} icon={Trash2} onClick={() => onRevoke(key)} />
      </li>
    ))}
  </Rows>
)

type NewKeyProps = {
  /** Queries that change afterwards. */
  changes: string
  create: (input: NewKeyInput) => Promise<Pick<Created, 'token'>>
  onClose: () => void
}

/** Creates a key, and shows it once. */
export function NewKey({ changes, create: make, onClose }: NewKeyProps) {
  const [name, setName] = useState('')
  const [days, setDays] = useState('90')
  const [isLimited, setIsLimited] = useState(false)
  const [scopes, setScopes] = useState<string[]>([])
  const show = useShowSecret()
  const create = useAction(
    async () => {
      const { token } = await make({
        name,
        ...(days && { expiresInDays: Number(days) }),
        ...(isLimited && { scopes }),
      })
      show({ title: t.made, text: t.madeText, secret: token })
    },
    { changes: [changes], quiet: true, onDone: onClose },
  )
  return (
    <Dialog open onClose={onClose} title={t.new}>
      <Form
        save={create}
        isReady={name.trim() !== '' && (!isLimited || scopes.length > 0)}
        label={texts.create}
        onCancel={onClose}
      >
        <NameField value={name} onChange={setName} />
        <Select
          label={t.expires}
          field="expiresInDays"
          options={[
            ...DAYS.map((each) => ({ value: String(each), label: t.days(each) })),
            { value: '', label: t.never },
          ]}
          value={days}
          onChange={({ target }) => setDays(target.value)}
        />
        <Select
          label={t.scopes}
          options={[
            { value: '', label: t.everything },
            { value: 'some', label: t.only },
          ]}
          value={isLimited ? 'some' : ''}
          onChange={({ target }) => setIsLimited(target.value !== '')}
        />
        {isLimited && (
          <Ticks
            label={t.only}
            empty={null}
            options={SCOPES.map((value) => ({ value, label: value }))}
            value={scopes}
            onChange={setScopes}
          />
        )}
      </Form>
    </Dialog>
  )
}

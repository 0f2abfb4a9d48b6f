import { useQuery } from '@tanstack/react-query'
import { Pencil, Plus, ServerCog, Trash2 } from 'lucide-react'
import { useState } from 'react'
import { callMutation } from '../../api.ts'
import { Badge } from '../../components/badge.tsx'
import { Button, IconButton } from '../../components/button.tsx'
import { Confirm, Dialog } from '../../components/dialog.tsx'
import { Select, TextField } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { Empty, Loaded, Rows } from '../../components/page.tsx'
import { cn } from '../../lib/class-names.ts'
import { moment } from '../../lib/format.ts'
import { query, useAction, WATCHED } from '../../queries.ts'
import { useIsAdmin, useSession } from '../../session.ts'
import { settings } from '../../texts/settings.ts'
import { texts } from '../../texts.ts'
import { usePeopleNames } from '../agents/names.ts'

const t = settings.providers

const KINDS = { ok: 'good', failed: 'bad', unchecked: 'plain' } as const

/** The model providers of the organization. */
export function Providers() {
  const { organization } = useSession()
  const isAdmin = useIsAdmin()
  const [opened, setOpened] = useState<'new' | Known | null>(null)
  const [doomed, setDoomed] = useState<string | null>(null)
  const orgId = organization?.id ?? ''
  const list = useQuery({ ...query('providers.list', { orgId }), ...WATCHED })
  const nameOf = usePeopleNames(list.data?.providers.flatMap(({ setBy }) => setBy ?? []) ?? [])
  const remove = useAction((name: string) => callMutation('providers.delete', { orgId, name }), {
    changes: ['providers.', 'models.'],
    done: texts.deleted,
  })
  return (
    <>
      <div className="mb-4 flex flex-wrap items-center justify-between gap-3">
        <p className="text-soft">{isAdmin ? t.help : t.onlyAdmins}</p>
        {isAdmin && (
          <Button kind="primary" icon={Plus} onClick={() => setOpened('new')}>
            {t.new}
          </Button>
        )}
      </div>
      <Loaded query={list} lines={3}>
        {({ providers }) =>
          providers.length ? (
            <Rows>
              {providers.map(({ name, baseUrl, source, status, error, setAt, setBy }) => (
                <li key={`${source}-${name}`} className="flex items-center gap-3 px-4 py-2.5">
                  <div className="min-w-0 flex-1">
                    <p className="truncate font-medium">{name}</p>
                    <p className={cn('text-soft text-xs', error ? 'break-words' : 'truncate')}>{error ?? baseUrl}</p>
                    {setAt && setBy && (
                      <p className="truncate text-soft text-xs" dir="auto">
                        {t.setBy(nameOf(setBy) ?? '…', moment(setAt))}
                      </p>
                    )}
                  </div>
                  {source === 'server' ? (
                    <Badge>{t.ofServer}</Badge>
                  ) : (
                    <>
                      <Badge kind={KINDS[status]}>{t.states[status]}</Badge>
                      {isAdmin && (
                        <>
                          <IconButton
                            label={t.change(name)}
                            icon={Pencil}
                            onClick={() => setOpened({ name, baseUrl })}
                          />
                          <IconButton label={`${texts.delete} ${name}`} icon={Trash2} onClick={() => setDoomed(name)} />
                        </>
                      )}
                    </>
                  )}
                </li>
              ))}
            </Rows>
          ) : (
            <Empty icon={ServerCog} title={t.emptyTitle} text={t.emptyText} />
          )
        }
      </Loaded>
      {opened && (
        <ProviderForm
          orgId={orgId}
          known={opened === 'new' ? null : opened}
          taken={list.data?.providers.flatMap(({ source, name }) => (source === 'server' ? [] : name)) ?? []}
          onClose={() => setOpened(null)}
        />
      )}
      {doomed !== null && (
        <Confirm
          onClose={() => setDoomed(null)}
          title={t.deleteTitle(doomed)}
          text={t.deleteText}
          action={texts.delete}
          onConfirm={() => remove.mutateAsync(doomed)}
        />
      )}
    </>
  )
}

const NAMES = ['anthropic', 'openai', 'google', 'compatible'] as const

/** The key of a server that needs none, which ignores it. */
const NO_KEY = 'none'

type Known = { name: string; baseUrl: string | null }

type FormProps = {
  orgId: string
  known: Known | null
  /** The providers that the organization has: adding one of them would replace its key. */
  taken: readonly string[]
  onClose: () => void
}

/** Adds a provider, or replaces the key and the address of a known one. */
function ProviderForm({ orgId, known, taken, onClose }: FormProps) {
  const names = NAMES.filter((each) => !taken.includes(each))
  const [kind, setKind] = useState<string>(known?.name.replace(/:.*/, '') ?? names[0] ?? 'custom')
  const [own, setOwn] = useState('')
  const [apiKey, setApiKey] = useState('')
  const [baseUrl, setBaseUrl] = useState(known?.baseUrl ?? '')
  const name = known?.name ?? (kind === 'custom' ? `compatible:${own.trim()}` : kind)
  const isCompatible = kind === 'custom' || kind === 'compatible'
  const save = useAction(
    () =>
      callMutation('providers.set', {
        orgId,
        name,
        apiKey: apiKey || NO_KEY,
        ...(baseUrl.trim() && { baseUrl: baseUrl.trim() }),
      }),
    { changes: ['providers.', 'models.'], done: t.saved, quiet: true, onDone: onClose },
  )
  // An empty key would replace a stored one.
  const isKeyNeeded = known !== null || !isCompatible
  const isTaken = !known && taken.includes(name)
  const isReady =
    (apiKey !== '' || !isKeyNeeded) &&
    !isTaken &&
    (kind !== 'custom' || own.trim() !== '') &&
    (!isCompatible || baseUrl.trim() !== '')
  return (
    <Dialog
      open
      onClose={onClose}
      title={known ? t.change(known.name) : t.new}
      {...(known && { description: t.changeHelp })}
    >
      <Form save={save} isReady={isReady} onCancel={onClose}>
        {!known && (
          <Select
            label={t.name}
            options={[
              ...names.map((value) => ({ value, label: t.kinds[value] })),
              { value: 'custom', label: t.custom },
            ]}
            value={kind}
            onChange={({ target }) => setKind(target.value)}
          />
        )}
        {kind === 'custom' && (
          <TextField
            label={t.customName}
            isCode
            field="name"
            help={t.customHelp}
            error={isTaken ? t.taken : null}
            required
            value={own}
            onChange={({ target }) => setOwn(target.value)}
          />
        )}
        <TextField
          label={t.apiKey}
          field="apiKey"
          help={isKeyNeeded ? t.apiKeyHelp : t.keyIfNeededHelp}
          type="password"
          required={isKeyNeeded}
          autoComplete="new-password"
          value={apiKey}
          onChange={({ target }) => setApiKey(target.value)}
        />
        <TextField
          label={t.baseUrl}
          field="baseUrl"
          help={isCompatible ? t.baseUrlExample : t.baseUrlHelp}
          type="url"
          required={isCompatible}
          value={baseUrl}
          onChange={({ target }) => setBaseUrl(target.value)}
        />
      </Form>
    </Dialog>
  )
}

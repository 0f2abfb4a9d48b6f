import { useQuery } from '@tanstack/react-query'
import { Pencil, Trash2 } from 'lucide-react'
import { type RefObject, useRef, useState } from 'react'
import { callMutation } from '../../api.ts'
import { IconButton } from '../../components/button.tsx'
import { Confirm } from '../../components/dialog.tsx'
import { TextArea, TextField } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { useGuard } from '../../components/guard.ts'
import { Loaded, Rows } from '../../components/page.tsx'
import { query, useAction } from '../../queries.ts'
import { spaces as t } from '../../texts/spaces.ts'
import { texts } from '../../texts.ts'

type Names = {
  data: { secrets: string[]; hosts: Record<string, string[]> } | undefined
  error: unknown
  isPending: boolean
  refetch: () => unknown
}

type Place = { spaceId: string } | { orgId: string }

/** The names of a space's or the organization's secrets. Their values are never shown. */
export function Secrets({ place }: { place: Place }) {
  const isSpace = 'spaceId' in place
  const ofSpace = useQuery({
    ...query('secrets.list', { id: isSpace ? place.spaceId : '' }),
    enabled: isSpace,
  })
  const ofOrganization = useQuery({
    ...query('secrets.listEnv', { orgId: isSpace ? '' : place.orgId }),
    enabled: !isSpace,
  })
  const list: Names = isSpace ? ofSpace : ofOrganization
  const [name, setName] = useState('')
  const [value, setValue] = useState('')
  const [hosts, setHosts] = useState('')
  useGuard(`${name}${value}${hosts}` !== '')
  const [doomed, setDoomed] = useState<string | null>(null)
  const valueField = useRef<HTMLInputElement & HTMLTextAreaElement>(null)
  const save = useAction(
    async () => {
      const secrets = { [name.trim()]: { value, hosts: hosts.split(/[\s,]+/).filter(Boolean) } }
      await (isSpace
        ? callMutation('secrets.set', { id: place.spaceId, secrets })
        : callMutation('secrets.setEnv', { ...place, secrets }))
      return { name, value, hosts }
    },
    {
      changes: ['secrets.'],
      done: t.secretSaved,
      quiet: true,
      // The person may have begun the next one meanwhile.
      onDone: (saved) => {
        setName((now) => (now === saved.name ? '' : now))
        setValue((now) => (now === saved.value ? '' : now))
        setHosts((now) => (now === saved.hosts ? '' : now))
      },
    },
  )
  const remove = useAction<string, unknown>(
    (secret) =>
      isSpace
        ? callMutation('secrets.deleteOne', { id: place.spaceId, name: secret })
        : callMutation('secrets.deleteOneEnv', { ...place, name: secret }),
    { changes: ['secrets.'], done: texts.deleted },
  )
  return (
    <div className="max-w-3xl">
      <p className="mb-3 text-soft">{t.secretHelp}</p>
      <Loaded query={list}>
        {({ secrets, hosts: hostsOf }) =>
          secrets.length ? (
            <Rows>
              {secrets.map((secret) => (
                <li key={secret} className="flex items-center gap-2 py-1.5 pr-2 pl-4">
                  <div className="min-w-0 flex-1">
                    <code className="block truncate font-mono text-xs">{secret}</code>
                    <p className="truncate text-soft text-xs" dir="auto">
                      {hostsOf[secret]?.length ? t.secretSentTo(hostsOf[secret].join(', ')) : t.secretNoHosts}
                    </p>
                  </div>
                  <IconButton
                    label={t.replaceSecret(secret)}
                    icon={Pencil}
                    onClick={() => {
                      setName(secret)
                      setHosts(hostsOf[secret]?.join(', ') ?? '')
                      valueField.current?.focus()
                    }}
                  />
                  <IconButton label={t.deleteSecret(secret)} icon={Trash2} onClick={() => setDoomed(secret)} />
                </li>
              ))}
            </Rows>
          ) : (
            <p className="text-soft">{t.noSecrets}</p>
          )
        }
      </Loaded>
      <Form save={save} isReady={name.trim() !== '' && value !== ''} className="mt-6 rounded-xl border border-line p-4">
        <h2 className="mb-2 font-semibold">{t.addSecret}</h2>
        <div className="grid gap-x-4 sm:grid-cols-2">
          <TextField
            label={t.secretName}
            isCode
            field="name"
            help={t.secretNameHelp}
            className="font-mono"
            autoComplete="off"
            required
            value={name}
            onChange={({ target }) => setName(target.value.toUpperCase())}
          />
          <SecretValue value={value} onChange={setValue} field={valueField} />
        </div>
        <TextField
          label={t.secretHosts}
          isCode
          field="hosts"
          help={t.secretHostsHelp}
          className="font-mono"
          autoComplete="off"
          placeholder="api.example.com"
          value={hosts}
          onChange={({ target }) => setHosts(target.value)}
        />
      </Form>
      {doomed !== null && (
        <Confirm
          onClose={() => setDoomed(null)}
          title={t.deleteSecretTitle(doomed)}
          text={t.deleteSecretText}
          action={texts.delete}
          onConfirm={() => remove.mutateAsync(doomed)}
        />
      )}
    </div>
  )
}

type ValueProps = {
  value: string
  onChange: (value: string) => void
  field: RefObject<(HTMLInputElement & HTMLTextAreaElement) | null>
}

/** The value of a secret, in dots. A field of one line would remove the line ends of a key that is pasted. */
function SecretValue({ value, onChange, field }: ValueProps) {
  const given = {
    label: t.secretValue,
    field: 'value',
    required: true,
    isCode: true,
    value,
    onChange: ({ target }: { target: { value: string } }) => onChange(target.value),
    ref: field,
  }
  if (value.includes('\n')) {
    return (
      <TextArea {...given} className="max-h-40 font-mono [-webkit-text-security:disc]" autoComplete="off" autoFocus />
    )
  }
  return (
    <TextField
      {...given}
      type="password"
      autoComplete="new-password"
      onPaste={(event) => {
        const text = event.clipboardData.getData('text/plain').replaceAll('\r\n', '\n')
        // The line end that a terminal adds is no part of a value.
        if (!text.trimEnd().includes('\n')) return
        event.preventDefault()
        onChange(text)
      }}
    />
  )
}

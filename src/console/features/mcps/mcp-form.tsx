import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { callMutation, type Output } from '../../api.ts'
import { Button } from '../../components/button.tsx'
import { ConfirmDelete } from '../../components/dialog.tsx'
import { useEdits } from '../../components/edits.ts'
import { Check, Field, NameField, Select, TextArea, TextField } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { changedFields } from '../../lib/changes.ts'
import { useOnce } from '../../once.ts'
import { query, readNow, useAction } from '../../queries.ts'
import { mcps as t } from '../../texts/mcps.ts'
import { texts } from '../../texts.ts'

export type Mcp = Output<'mcps.get'>['mcp']
/** Transport of a server that people can add. Programs are declared by the operator. */
type Transport = Exclude<Mcp['transport'], 'stdio'>

/** Parses lines such as `Name: value`. Throws for an invalid line. */
function toPairs(text: string, mark: string): [string, string][] {
  const lines = text.split('\n').filter((line) => line.trim())
  return lines.map((line) => {
    const at = line.indexOf(mark)
    if (at < 1) throw new Error(t.badLine(line))
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()]
  })
}

type Draft = Pick<Mcp, 'mcpType' | 'name' | 'isActive' | 'auth'> & {
  description: string
  url: string
  transport: Transport
  headers: string
  credentials: string
  clientId: string
  clientSecret: string
  scope: string
}

const LABELS: Record<keyof Draft, string> = {
  mcpType: t.type,
  name: texts.name,
  isActive: t.active,
  auth: t.auth,
  description: texts.description,
  url: t.url,
  transport: t.transport,
  headers: t.headers,
  credentials: t.credentials,
  clientId: t.clientId,
  clientSecret: t.clientSecret,
  scope: t.scope,
}

const toDraft = (mcp: Mcp | null): Draft => ({
  mcpType: mcp?.mcpType ?? 'custom',
  name: mcp?.name ?? '',
  description: mcp?.description ?? '',
  url: mcp?.url ?? '',
  transport: (mcp?.transport ?? 'streamable-http') as Transport,
  isActive: mcp?.isActive ?? true,
  headers: Object.entries(mcp?.headers ?? {})
    .map(([name, value]) => `${name}: ${value}`)
    .join('\n'),
  credentials: '',
  auth: mcp?.auth ?? 'headers',
  clientId: mcp?.clientId ?? '',
  clientSecret: '',
  scope: mcp?.scope ?? '',
})

/** Converts a draft to a request. Throws for an invalid line. */
function toInput({ headers, credentials: lines, clientId, clientSecret, scope, ...rest }: Draft) {
  const credentials = Object.fromEntries(toPairs(lines, '=').map(([name, value]) => [name, { value, isSecret: true }]))
  return {
    ...rest,
    clientId: clientId.trim() || null,
    scope: scope.trim() || null,
    ...(clientSecret && { clientSecret }),
    headers: Object.fromEntries(toPairs(headers, ':')),
    ...(Object.keys(credentials).length > 0 && { credentials }),
  }
}

/** Adds or changes a server. */
export function McpForm({ mcp, onClose }: { mcp: Mcp | null; onClose: () => void }) {
  const catalogue = useQuery({ ...query('mcps.catalogue', undefined), enabled: !mcp })
  const saved = toDraft(mcp)
  const read = mcp && (async () => toDraft((await readNow('mcps.get', { id: mcp.id })).mcp))
  const { draft, set, check } = useEdits(saved, LABELS, read)
  const once = useOnce()
  const save = useAction(
    async () => {
      if (!mcp) return once('mcps.create', toInput(draft))
      const changes = changedFields(toInput(saved), toInput(draft))
      return check(() => callMutation('mcps.update', { id: mcp.id, ...changes }))
    },
    { changes: ['mcps.'], done: mcp ? texts.saved : t.created, onDone: onClose, quiet: true },
  )
  const types = catalogue.data?.types ?? []
  return (
    <Form
      save={save}
      isReady={draft.name.trim() !== '' && draft.url.trim() !== ''}
      label={mcp ? texts.save : texts.add}
      onCancel={onClose}
      more={mcp && <DeleteMcp mcp={mcp} onClose={onClose} />}
    >
      {!mcp && (
        <Field label={t.type} field="mcpType">
          {(given) => (
            <select
              className="field"
              value={draft.mcpType}
              onChange={({ target }) => {
                const type = types.find((each) => each.mcpType === target.value)
                const auth = type?.auth === 'oauth' ? 'oauth' : 'headers'
                set({ mcpType: target.value, auth, ...(type && { name: type.name, url: type.url }) })
              }}
              {...given}
            >
              <option value="custom">{t.custom}</option>
              {types.map(({ mcpType, name }) => (
                <option key={mcpType} value={mcpType}>
                  {name}
                </option>
              ))}
            </select>
          )}
        </Field>
      )}
      <div className="grid gap-x-4 sm:grid-cols-2">
        <NameField value={draft.name} onChange={(name) => set({ name })} />
        <Select
          label={t.transport}
          field="transport"
          options={['streamable-http', 'sse'].map((value) => ({ value, label: value }))}
          value={draft.transport}
          onChange={({ target }) => set({ transport: target.value as Transport })}
        />
      </div>
      <TextField
        label={t.url}
        field="url"
        type="url"
        required
        maxLength={2000}
        value={draft.url}
        onChange={({ target }) => set({ url: target.value })}
      />
      <TextField
        label={texts.description}
        field="description"
        maxLength={2000}
        value={draft.description}
        onChange={({ target }) => set({ description: target.value })}
      />
      <Select
        label={t.auth}
        field="auth"
        options={Object.entries(t.auths).map(([value, label]) => ({ value, label }))}
        value={draft.auth}
        onChange={({ target }) => set({ auth: target.value as Mcp['auth'] })}
      />
      {(draft.auth === 'oauth' || draft.auth === 'client_credentials') && (
        <div className="grid gap-x-4 sm:grid-cols-3">
          <TextField
            label={t.clientId}
            isCode
            field="clientId"
            help={draft.auth === 'oauth' ? t.clientIdHelp : undefined}
            required={draft.auth === 'client_credentials'}
            maxLength={2000}
            value={draft.clientId}
            onChange={({ target }) => set({ clientId: target.value })}
          />
          <TextField
            label={t.clientSecret}
            field="clientSecret"
            help={mcp?.clientSecretSet ? t.clientSecretSet : t.clientSecretHelp}
            type="password"
            autoComplete="off"
            maxLength={2000}
            value={draft.clientSecret}
            onChange={({ target }) => set({ clientSecret: target.value })}
          />
          <TextField
            label={t.scope}
            isCode
            field="scope"
            help={t.scopeHelp}
            maxLength={2000}
            value={draft.scope}
            onChange={({ target }) => set({ scope: target.value })}
          />
        </div>
      )}
      <div className="grid gap-x-4 sm:grid-cols-2">
        <TextArea
          label={t.headers}
          isCode
          field="headers"
          help={t.headersHelp}
          className="font-mono text-xs"
          value={draft.headers}
          onChange={({ target }) => set({ headers: target.value })}
        />
        <TextArea
          label={t.credentials}
          isCode
          field="credentials"
          help={
            mcp?.credentialsSet.length
              ? `${t.credentialsHelp} ${t.credentialsSet(mcp.credentialsSet.join(', '))}`
              : t.credentialsHelp
          }
          className="font-mono text-xs"
          autoComplete="off"
          value={draft.credentials}
          onChange={({ target }) => set({ credentials: target.value })}
        />
      </div>
      <Check label={t.active} checked={draft.isActive} onChange={(isActive) => set({ isActive })} className="mb-3" />
    </Form>
  )
}

/** A button that deletes a server after a confirmation. */
export function DeleteMcp({ mcp, onClose }: { mcp: Mcp; onClose: () => void }) {
  const [isOpen, setIsOpen] = useState(false)
  const remove = useAction(() => callMutation('mcps.delete', { id: mcp.id }), {
    changes: ['mcps.'],
    done: texts.deleted,
    onDone: onClose,
  })
  return (
    <>
      <Button kind="danger" className="mr-auto" onClick={() => setIsOpen(true)}>
        {t.delete}
      </Button>
      {isOpen && <ConfirmDelete t={t} remove={remove} onClose={() => setIsOpen(false)} />}
    </>
  )
}

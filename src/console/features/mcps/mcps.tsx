import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { Plug, Plus } from 'lucide-react'
import { useState } from 'react'
import { callMutation, type Output } from '../../api.ts'
import { Badge } from '../../components/badge.tsx'
import { Button } from '../../components/button.tsx'
import { Code } from '../../components/code.tsx'
import { Confirm, Dialog } from '../../components/dialog.tsx'
import { Field, Select, TextArea, TextField } from '../../components/field.tsx'
import { More } from '../../components/more.tsx'
import { Empty, Loaded, Page, Problem, Rows, Section } from '../../components/page.tsx'
import { pretty } from '../../lib/format.ts'
import { pages, query, useAction } from '../../queries.ts'
import { useIsAdmin, useMayChange } from '../../session.ts'
import { texts } from '../../texts.ts'
import { Connection } from './connection.tsx'

const t = texts.mcps

type Mcp = Output<'mcps.get'>['mcp']
type Mode = Mcp['permissions'][number]['mode']
/** Transport of a server that people can add. Programs are declared by the operator. */
type Transport = Exclude<Mcp['transport'], 'stdio'>

/** The MCP servers whose tools agents can use. */
export function Mcps() {
  const navigate = useNavigate({ from: '/mcps' })
  const { mcp: opened, connection } = useSearch({ from: '/mcps' })
  const [isNew, setIsNew] = useState(false)
  const list = useInfiniteQuery(pages('mcps.list', {}))
  const open = (mcp: string | undefined) => void navigate({ search: { mcp } })
  const add = (
    <Button kind="primary" icon={Plus} onClick={() => setIsNew(true)}>
      {t.new}
    </Button>
  )
  return (
    <Page title={t.title} actions={add}>
      <Loaded query={list}>
        {({ pages: read }) => {
          const mcps = read.flatMap((page) => page.mcps)
          if (!mcps.length) {
            return (
              <Empty icon={Plug} title={t.emptyTitle} text={t.emptyText}>
                {add}
              </Empty>
            )
          }
          return (
            <Rows>
              {mcps.map((mcp) => (
                <li key={mcp.id} className="relative flex items-center gap-4 px-4 py-3 hover:bg-panel">
                  <div className="min-w-0 flex-1">
                    <button
                      type="button"
                      dir="auto"
                      className="block max-w-full truncate font-medium after:absolute after:inset-0"
                      onClick={() => open(mcp.id)}
                    >
                      {mcp.name}
                    </button>
                    <p className="truncate text-soft">{mcp.url}</p>
                  </div>
                  <span className="hidden text-soft sm:inline">{t.used(mcp.usageCount)}</span>
                  {mcp.source === 'operator' && <Badge kind="plain">{t.operator}</Badge>}
                  <Badge kind={mcp.isActive ? 'good' : 'plain'}>{mcp.isActive ? t.active : t.inactive}</Badge>
                </li>
              ))}
            </Rows>
          )
        }}
      </Loaded>
      <More query={list} />
      {isNew && (
        <Dialog open onClose={() => setIsNew(false)} title={t.new} as="wide">
          <Form mcp={null} onClose={() => setIsNew(false)} />
        </Dialog>
      )}
      {opened && <Opened id={opened} outcome={connection} onClose={() => open(undefined)} />}
    </Page>
  )
}

function Opened({ id, outcome, onClose }: { id: string; outcome: string | undefined; onClose: () => void }) {
  const isAdmin = useIsAdmin()
  const mcp = useQuery(query('mcps.get', { id }))
  const mayChange = useMayChange(mcp.data?.mcp.ownerId)
  return (
    <Dialog open onClose={onClose} title={mcp.data?.mcp.name ?? t.title} as="wide">
      <Loaded query={mcp}>
        {({ mcp: found }) => {
          const isOperators = found.source === 'operator'
          const mayWrite = isOperators ? isAdmin : mayChange
          return (
            <>
              {isOperators && <p className="mb-3 text-soft">{found.isActive ? t.operatorHelp : t.operatorGone}</p>}
              {!mayWrite && !isOperators && <p className="mb-3 text-soft">{texts.readOnly}</p>}
              {found.auth === 'oauth' && <Connection mcp={found} outcome={outcome} />}
              <Tools key={found.updatedAt} mcp={found} mayWrite={mayWrite} />
              {mayWrite && !isOperators && <Form key={found.id} mcp={found} onClose={onClose} />}
              {mayWrite && isOperators && !found.isActive && <Delete mcp={found} onClose={onClose} />}
            </>
          )
        }}
      </Loaded>
    </Dialog>
  )
}

/** Connects to the server and lists its tools with their inputs. */
function Tools({ mcp, mayWrite }: { mcp: Mcp; mayWrite: boolean }) {
  const [isAsked, setIsAsked] = useState(false)
  const tools = useQuery({ ...query('mcps.tools', { id: mcp.id }), enabled: isAsked, retry: false, staleTime: 60_000 })
  const permit = useAction(
    ({ tool, mode }: { tool: string; mode: Mode | '' }) => {
      const rest = mcp.permissions.filter((each) => each.tool !== tool)
      return callMutation('mcps.update', { id: mcp.id, permissions: mode ? [...rest, { tool, mode }] : rest })
    },
    { changes: ['mcps.get', 'mcps.list'], done: texts.saved },
  )
  const picker = (tool: string) => (
    <select
      aria-label={`${t.permissions}: ${tool}`}
      className="field w-auto py-1"
      disabled={!mayWrite || permit.isPending}
      value={mcp.permissions.find((each) => each.tool === tool)?.mode ?? ''}
      onChange={({ target }) => permit.mutate({ tool, mode: target.value as Mode | '' })}
    >
      <option value="">{tool === '*' ? texts.agents.modes.allow : t.asDefault}</option>
      {Object.entries(texts.agents.modes).map(([mode, label]) => (
        <option key={mode} value={mode}>
          {label}
        </option>
      ))}
    </select>
  )
  return (
    <Section
      title={t.tools}
      actions={
        <Button small busy={tools.isFetching} onClick={() => (isAsked ? void tools.refetch() : setIsAsked(true))}>
          {t.test}
        </Button>
      }
    >
      {isAsked ? (
        <Loaded query={tools} lines={3}>
          {({ tools: found }) =>
            found.length ? (
              <ul className="max-h-80 divide-y divide-line overflow-y-auto rounded-lg border border-line">
                <li className="flex items-center justify-between gap-3 px-3 py-2">
                  <span className="font-medium">{t.default}</span>
                  {picker('*')}
                </li>
                {found.map((tool) => (
                  <li key={tool.name} className="px-3 py-2">
                    <div className="flex items-start justify-between gap-3">
                      <div className="min-w-0">
                        <code className="font-mono text-xs">{tool.name}</code>
                        <p className="line-clamp-3 text-soft" dir="auto">
                          {tool.description}
                        </p>
                      </div>
                      {picker(tool.name)}
                    </div>
                    <details>
                      <summary className="text-soft text-xs">{t.schema}</summary>
                      <Code text={pretty(tool.inputSchema)} className="mt-1" />
                    </details>
                  </li>
                ))}
              </ul>
            ) : (
              <p className="text-soft">{t.noTools}</p>
            )
          }
        </Loaded>
      ) : (
        <p className="text-soft">{t.toolsHelp}</p>
      )}
    </Section>
  )
}

/** Parses lines such as `Name: value`. Throws for an invalid line. */
function toPairs(text: string, mark: string): [string, string][] {
  const lines = text.split('\n').filter((line) => line.trim())
  return lines.map((line) => {
    const at = line.indexOf(mark)
    if (at < 1) throw new Error(t.badLine(line))
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()]
  })
}

function Form({ mcp, onClose }: { mcp: Mcp | null; onClose: () => void }) {
  const catalogue = useQuery({ ...query('mcps.catalogue', undefined), enabled: !mcp })
  const [draft, setDraft] = useState({
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
    auth: mcp?.auth ?? ('headers' as Mcp['auth']),
    clientId: mcp?.clientId ?? '',
    clientSecret: '',
    scope: mcp?.scope ?? '',
  })
  const set = (changes: Partial<typeof draft>) => setDraft({ ...draft, ...changes })
  const save = useAction(
    async () => {
      const credentials = Object.fromEntries(
        toPairs(draft.credentials, '=').map(([name, value]) => [name, { value, isSecret: true }]),
      )
      const { headers, credentials: _, clientId, clientSecret, scope, ...rest } = draft
      const input = {
        ...rest,
        clientId: clientId.trim() || null,
        scope: scope.trim() || null,
        ...(clientSecret && { clientSecret }),
        headers: Object.fromEntries(toPairs(headers, ':')),
        ...(Object.keys(credentials).length > 0 && { credentials }),
      }
      return mcp ? callMutation('mcps.update', { id: mcp.id, ...input }) : callMutation('mcps.create', input)
    },
    { changes: ['mcps.'], done: mcp ? texts.saved : t.created, onDone: onClose, quiet: true },
  )
  const types = catalogue.data?.types ?? []
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault()
        save.mutate(undefined)
      }}
    >
      {!mcp && (
        <Field label={t.type}>
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
        <TextField
          label={texts.name}
          required
          maxLength={200}
          value={draft.name}
          onChange={({ target }) => set({ name: target.value })}
        />
        <Select
          label={t.transport}
          options={['streamable-http', 'sse'].map((value) => ({ value, label: value }))}
          value={draft.transport}
          onChange={({ target }) => set({ transport: target.value as Transport })}
        />
      </div>
      <TextField
        label={t.url}
        type="url"
        required
        maxLength={2000}
        value={draft.url}
        onChange={({ target }) => set({ url: target.value })}
      />
      <TextField
        label={texts.description}
        maxLength={2000}
        value={draft.description}
        onChange={({ target }) => set({ description: target.value })}
      />
      <Select
        label={t.auth}
        options={Object.entries(t.auths).map(([value, label]) => ({ value, label }))}
        value={draft.auth}
        onChange={({ target }) => set({ auth: target.value as Mcp['auth'] })}
      />
      {(draft.auth === 'oauth' || draft.auth === 'client_credentials') && (
        <div className="grid gap-x-4 sm:grid-cols-3">
          <TextField
            label={t.clientId}
            help={draft.auth === 'oauth' ? t.clientIdHelp : undefined}
            required={draft.auth === 'client_credentials'}
            maxLength={2000}
            value={draft.clientId}
            onChange={({ target }) => set({ clientId: target.value })}
          />
          <TextField
            label={t.clientSecret}
            help={mcp?.clientSecretSet ? t.clientSecretSet : t.clientSecretHelp}
            type="password"
            autoComplete="off"
            maxLength={2000}
            value={draft.clientSecret}
            onChange={({ target }) => set({ clientSecret: target.value })}
          />
          <TextField
            label={t.scope}
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
          help={t.headersHelp}
          className="font-mono text-xs"
          spellCheck={false}
          value={draft.headers}
          onChange={({ target }) => set({ headers: target.value })}
        />
        <TextArea
          label={t.credentials}
          help={
            mcp?.credentialsSet.length
              ? `${t.credentialsHelp} ${t.credentialsSet(mcp.credentialsSet.join(', '))}`
              : t.credentialsHelp
          }
          className="font-mono text-xs"
          spellCheck={false}
          autoComplete="off"
          value={draft.credentials}
          onChange={({ target }) => set({ credentials: target.value })}
        />
      </div>
      <label className="mb-3 flex items-center gap-2">
        <input
          type="checkbox"
          className="size-4 accent-accent"
          checked={draft.isActive}
          onChange={({ target }) => set({ isActive: target.checked })}
        />
        {t.active}
      </label>
      {save.error && <Problem error={save.error} />}
      <div className="mt-3 flex justify-end gap-2">
        {mcp && <Delete mcp={mcp} onClose={onClose} />}
        <Button onClick={onClose}>{texts.cancel}</Button>
        <Button kind="primary" type="submit" disabled={!draft.name.trim() || !draft.url.trim()} busy={save.isPending}>
          {mcp ? texts.save : texts.add}
        </Button>
      </div>
    </form>
  )
}

/** A button that deletes a server after a confirmation. */
function Delete({ mcp, onClose }: { mcp: Mcp; onClose: () => void }) {
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
      <Confirm
        open={isOpen}
        onClose={() => setIsOpen(false)}
        title={t.deleteTitle}
        text={t.deleteText}
        action={t.delete}
        onConfirm={() => remove.mutateAsync(undefined)}
      />
    </>
  )
}

import { queryOptions, useInfiniteQuery, useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { Plug } from 'lucide-react'
import { useEffect, useState } from 'react'
import { callMutation, callQuery, toFailure } from '../../api.ts'
import { Badge } from '../../components/badge.tsx'
import { Button } from '../../components/button.tsx'
import { Code } from '../../components/code.tsx'
import { Dialog } from '../../components/dialog.tsx'
import { ListPage } from '../../components/list-page.tsx'
import { Loaded, Problem, Section } from '../../components/page.tsx'
import { useSearching } from '../../components/search.tsx'
import { toast } from '../../components/toast.tsx'
import { pretty } from '../../lib/format.ts'
import { pages, query, queryClient, readNow, useAction, WATCHED } from '../../queries.ts'
import { useIsAdmin, useMayChange } from '../../session.ts'
import { mcps as t } from '../../texts/mcps.ts'
import { texts } from '../../texts.ts'
import { returnToRun } from './connect.tsx'
import { Connection } from './connection.tsx'
import { DeleteMcp, type Mcp, McpForm } from './mcp-form.tsx'
import type { Outcome } from './outcome.ts'

type Mode = Mcp['permissions'][number]['mode']

/** The MCP servers whose tools agents can use. */
export function Mcps() {
  const navigate = useNavigate({ from: '/mcps' })
  const { mcp: opened, connection, code } = useSearch({ from: '/mcps' })
  const searching = useSearching()
  const list = useInfiniteQuery({ ...pages('mcps.list', searching.filter), ...WATCHED })
  const listed = list.data?.pages.flatMap((page) => page.mcps) ?? []
  // A server that refuses the person's tokens ends the connection.
  const test = useAction(() => testAll(listed.filter(isTestable)), { changes: ['mcps.list'] })
  useEffect(() => {
    if (connection === 'connected') returnToRun()
  }, [connection])
  const open = (mcp: string | undefined) =>
    void navigate({ search: ({ search }) => ({ search, mcp }), replace: mcp === undefined })
  return (
    <ListPage
      t={t}
      icon={Plug}
      list={list}
      searching={searching}
      filter={{
        field: (
          <Button busy={test.isPending} disabled={!listed.some(isTestable)} onClick={() => test.mutate(undefined)}>
            {t.testAll}
          </Button>
        ),
        isSet: false,
      }}
      rowsOf={(page) => page.mcps.map((mcp) => <Row key={mcp.id} mcp={mcp} onOpen={() => open(mcp.id)} />)}
      form={(close) => (
        <Dialog open onClose={close} title={t.new} as="wide">
          <McpForm mcp={null} onClose={close} />
        </Dialog>
      )}
    >
      {opened && (
        <Opened
          id={opened}
          outcome={connection === undefined ? undefined : { problem: connection, code }}
          onClose={() => open(undefined)}
        />
      )}
    </ListPage>
  )
}

const isTestable = ({ isActive, auth, connection }: Mcp) => isActive && (auth !== 'oauth' || connection === 'connected')

/** The tools of a server, or why it does not list them, until it is changed. */
const testOf = ({ id, updatedAt }: Mcp) =>
  queryOptions({
    queryKey: ['mcps.tools', id, updatedAt],
    // With the signal, a test would fail when its row leaves the page.
    queryFn: () => callQuery('mcps.tools', { id }),
    // Each try may take a minute.
    retry: false,
  })

/** Maximum number of servers that are tested at the same time. The other connections of the browser stay free. */
const MAX_TESTS = 3

/**
 * Asks servers for their tools, and says how many do not list them, also to a person who has gone to another page
 * meanwhile. The rows show the answers.
 */
async function testAll(mcps: readonly Mcp[]): Promise<void> {
  const waiting = [...mcps]
  let unusable = 0
  const work = async () => {
    for (let mcp = waiting.shift(); mcp; mcp = waiting.shift())
      await queryClient.fetchQuery({ ...testOf(mcp), staleTime: 0 }).catch(() => {
        unusable += 1
      })
  }
  await Promise.all(Array.from({ length: MAX_TESTS }, work))
  toast(t.tested(unusable), unusable ? 'bad' : 'good')
}

function Row({ mcp, onOpen }: { mcp: Mcp; onOpen: () => void }) {
  const { data, error, isFetching } = useQuery({ ...testOf(mcp), enabled: false })
  const { message, detail } = toFailure(error)
  return (
    <li className="relative flex flex-wrap items-center gap-x-4 gap-y-1 px-4 py-3 hover:bg-panel">
      <div className="min-w-0 flex-1 basis-40">
        <button
          type="button"
          dir="auto"
          className="block max-w-full truncate font-medium after:absolute after:inset-0"
          onClick={onOpen}
        >
          {mcp.name}
        </button>
        <p className="truncate text-soft">{mcp.url}</p>
        {error && (
          <p className="line-clamp-5 text-danger" dir="auto">
            {detail ?? message}
          </p>
        )}
      </div>
      <span className="hidden text-soft sm:inline">{t.used(mcp.usageCount)}</span>
      {mcp.source === 'operator' && <Badge>{t.operator}</Badge>}
      {isFetching ? (
        <Badge>{t.tests}</Badge>
      ) : error ? (
        <Badge kind="bad">{t.unusable}</Badge>
      ) : data ? (
        <Badge kind="good">{t.toolCount(data.tools.length)}</Badge>
      ) : (
        <Badge kind={mcp.isActive ? 'accent' : 'plain'}>{mcp.isActive ? t.active : t.inactive}</Badge>
      )}
    </li>
  )
}

function Opened({ id, outcome, onClose }: { id: string; outcome: Outcome | undefined; onClose: () => void }) {
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
              {!mayWrite && !isOperators && (
                <div className="mb-4" dir="auto">
                  <p className="mb-3 text-soft">{texts.readOnly}</p>
                  {found.description && <p>{found.description}</p>}
                  <p className="break-all font-mono text-xs">{found.url}</p>
                </div>
              )}
              {found.auth === 'oauth' && <Connection mcp={found} outcome={outcome} />}
              <Tools key={found.url} mcp={found} mayWrite={mayWrite} />
              {mayWrite && !isOperators && <McpForm key={found.id} mcp={found} onClose={onClose} />}
              {mayWrite && isOperators && !found.isActive && <DeleteMcp mcp={found} onClose={onClose} />}
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
  const error = toFailure(tools.error).status === 409 ? new Error(t.connection.first) : tools.error
  const cache = useQueryClient()
  useEffect(() => {
    // A server that refuses the person's tokens ends the connection.
    if (tools.error) void cache.invalidateQueries({ queryKey: ['mcps.get'] })
  }, [tools.error, cache])
  const permit = useAction(
    async ({ tool, mode }: { tool: string; mode: Mode | '' }) => {
      // The list of the page may lack the change before, and those of others.
      const { permissions } = (await readNow('mcps.get', { id: mcp.id })).mcp
      const rest = permissions.filter((each) => each.tool !== tool)
      return callMutation('mcps.update', { id: mcp.id, permissions: mode ? [...rest, { tool, mode }] : rest })
    },
    { changes: ['mcps.get', 'mcps.list'], done: texts.saved, untilRead: true, inTurn: true },
  )
  const modeOf = (tool: string) =>
    [...mcp.permissions, ...permit.pending].findLast((each) => each.tool === tool)?.mode ?? ''
  const picker = (tool: string) => (
    <select
      aria-label={`${t.permissions}: ${tool === '*' ? t.default : tool}`}
      className="field w-auto py-1"
      disabled={!mayWrite}
      value={modeOf(tool) || (tool === '*' ? 'allow' : '')}
      // It is saved at once, so that closing the dialog loses nothing.
      onInput={(event) => event.stopPropagation()}
      onChange={({ target }) => permit.mutate({ tool, mode: target.value as Mode | '' })}
    >
      {tool !== '*' && <option value="">{t.asDefault}</option>}
      {Object.entries(texts.toolModes.modes).map(([mode, label]) => (
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
      {tools.data && error && (
        <div className="mb-3">
          <Problem error={error} />
        </div>
      )}
      {isAsked ? (
        <Loaded query={{ ...tools, error }} lines={3}>
          {({ tools: found }) =>
            found.length ? (
              <ul className="max-h-80 divide-y divide-line overflow-y-auto rounded-lg border border-line">
                <li className="flex items-center justify-between gap-3 px-3 py-2">
                  <span className="font-medium">{t.default}</span>
                  {picker('*')}
                </li>
                {mcp.permissions
                  .filter(({ tool }) => tool !== '*' && !found.some(({ name }) => name === tool))
                  .map(({ tool }) => (
                    <li key={tool} className="flex items-center justify-between gap-3 px-3 py-2">
                      <p className="min-w-0">
                        <bdi className="break-all font-mono text-xs">{tool}</bdi>
                        <span className="block text-danger text-xs">{t.noSuchTool}</span>
                      </p>
                      {picker(tool)}
                    </li>
                  ))}
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

import { Link2, Unlink } from 'lucide-react'
import { callMutation, type Output } from '../../api.ts'
import { Badge } from '../../components/badge.tsx'
import { Button } from '../../components/button.tsx'
import { Problem, Section } from '../../components/page.tsx'
import { readStored, store } from '../../lib/storage.ts'
import { useAction } from '../../queries.ts'
import { texts } from '../../texts.ts'

const t = texts.connection

type Mcp = Output<'mcps.get'>['mcp']

/** The page whose run waits for the connection: its path and query. */
const WAITING_PAGE = 'muster.waitingPage'

/** Leads back to the page whose run has waited for a connection, if the browser comes from one. */
export function returnToRun(): void {
  const page = readStored('sessionStorage', WAITING_PAGE)
  store('sessionStorage', WAITING_PAGE, null)
  if (page) location.replace(page)
}

type ConnectProps = { mcpId: string; again?: boolean; isForRun?: boolean }

/**
 * Leads to the authorization server of an MCP server, which returns the browser to the server's page. `isForRun`: once
 * connected, the browser comes back here.
 */
export function ConnectButton({ mcpId, again = false, isForRun = false }: ConnectProps) {
  const connect = useAction(() => callMutation('mcps.connect', { id: mcpId }), {
    onDone({ url }) {
      if (isForRun) store('sessionStorage', WAITING_PAGE, location.pathname + location.search)
      location.assign(url)
    },
    quiet: true,
  })
  return (
    <>
      <Button kind="primary" icon={Link2} busy={connect.isPending} onClick={() => connect.mutate(undefined)}>
        {again ? t.again : t.connect}
      </Button>
      {connect.error && <Problem error={connect.error} />}
    </>
  )
}

/** The outcome of a sign-in from which the browser has returned, with the code of a refusal. */
export type Outcome = { problem: string; code: string | undefined }

/** Describes a failed sign-in. Anyone can write an address, so a code that may be a text is left out. */
function describe({ problem, code = '' }: Outcome): string | undefined {
  if (problem !== 'refused' || !/^[a-z_]{1,60}$/.test(code)) return t.problems[problem]
  return t.refusals[code] ?? t.refusedWith(code)
}

/** The person's own connection to a server with OAuth. */
export function Connection({ mcp, outcome }: { mcp: Mcp; outcome: Outcome | undefined }) {
  const { connection, connectedAs } = mcp
  const disconnect = useAction(() => callMutation('mcps.disconnect', { id: mcp.id }), {
    changes: ['mcps.'],
    done: t.disconnected,
  })
  const problem = outcome && describe(outcome)
  return (
    <Section title={t.title}>
      {problem && (
        <p role="alert" className="mb-3 rounded-lg bg-danger-tint px-3 py-2 text-danger">
          {problem}
        </p>
      )}
      <p className="mb-3 flex flex-wrap items-center gap-2">
        <Badge kind={connection === 'connected' ? 'good' : connection === 'expired' ? 'warn' : 'plain'}>
          {t.states[connection]}
        </Badge>
        <span className="text-soft" dir="auto">
          {connection === 'connected' ? (connectedAs ? t.as(connectedAs) : t.asYou) : t.help[connection]}
        </span>
      </p>
      <div className="flex flex-wrap items-center gap-2">
        {connection !== 'connected' && <ConnectButton mcpId={mcp.id} again={connection === 'expired'} />}
        {connection !== 'none' && (
          <Button icon={Unlink} busy={disconnect.isPending} onClick={() => disconnect.mutate(undefined)}>
            {t.disconnect}
          </Button>
        )}
      </div>
    </Section>
  )
}

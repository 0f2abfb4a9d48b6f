import { Unlink } from 'lucide-react'
import { callMutation } from '../../api.ts'
import { Badge } from '../../components/badge.tsx'
import { Button } from '../../components/button.tsx'
import { Section } from '../../components/page.tsx'
import { useAction } from '../../queries.ts'
import { mcps } from '../../texts/mcps.ts'
import { ConnectButton } from './connect.tsx'
import type { Mcp } from './mcp-form.tsx'
import { describe, type Outcome } from './outcome.ts'

const t = mcps.connection

/** The person's own connection to a server with OAuth. */
export function Connection({ mcp, outcome }: { mcp: Mcp; outcome: Outcome | undefined }) {
  const { connection, connectedAs } = mcp
  const disconnect = useAction(() => callMutation('mcps.disconnect', { id: mcp.id }), {
    changes: ['mcps.'],
    done: t.disconnected,
    untilRead: true,
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

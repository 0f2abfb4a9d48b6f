import { useQuery } from '@tanstack/react-query'
import { Square } from 'lucide-react'
import { toFailure } from '../../api.ts'
import { Button } from '../../components/button.tsx'
import { query } from '../../queries.ts'
import { texts } from '../../texts.ts'
import { agentQuery } from '../agents/names.ts'
import { Unsent } from './unsent.tsx'

const t = texts.chat

const isMissing = (error: unknown) => error !== null && toFailure(error).status === 404

/**
 * Returns whether no agent would answer the next message of a chat: neither the one it was opened with nor the one of
 * its last run, which another client may have chosen. `lastRunId` is null without a run, and undefined as long as it is
 * not read.
 */
export function useIsAgentGone(agentId: string | null | undefined, lastRunId: string | null | undefined): boolean {
  const own = useQuery({ ...agentQuery(agentId ?? ''), enabled: !!agentId })
  const isOwnGone = isMissing(own.error)
  const run = useQuery({ ...query('executions.get', { id: lastRunId ?? '' }), enabled: isOwnGone && !!lastRunId })
  const lastAgentId = run.data?.execution.agentId
  const last = useQuery({ ...agentQuery(lastAgentId ?? ''), enabled: !!lastAgentId })
  return isOwnGone && (lastRunId === null || isMissing(run.error) || isMissing(last.error))
}

/** Stands in place of the composer of a chat whose agent is gone. */
export const GoneAgent = ({ chatId, onStop }: { chatId: string; onStop: (() => void) | null }) => (
  <div className="flex flex-col items-start gap-2 rounded-2xl border border-line bg-panel px-4 py-3" role="status">
    <p className="font-medium">{t.agentGone}</p>
    <p className="text-soft">{t.agentGoneText}</p>
    <Unsent chatId={chatId} areListed />
    {onStop && (
      <Button icon={Square} onClick={onStop}>
        {t.stop}
      </Button>
    )}
  </div>
)

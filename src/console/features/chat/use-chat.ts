import { useQuery } from '@tanstack/react-query'
import { useEffect, useMemo } from 'react'
import { query } from '../../queries.ts'
import { useSession } from '../../session.ts'
import { messagesKey, readMessages, readWaiting, useFollowedChat, waitingKey } from './follow.ts'
import { useOutgoing } from './outgoing.ts'
import { type Outgoing, unlistedMessages } from './waiting.ts'

/** A run, or a message of one. The page has no run of a message that it still sends. */
type OfRun = { executionId: string | null }

/** Number of runs at the end of a chat whose warnings are shown. */
const RECENT_RUNS = 20

/** Reads a chat: its listed messages, its live runs, and the messages that it does not list yet. */
export function useChat(chatId: string) {
  const info = useQuery(query('chats.get', { id: chatId })).data?.chat
  const history = useQuery({
    queryKey: messagesKey(chatId),
    queryFn: ({ signal }) => readMessages(chatId, signal),
  })
  const { data: waiting = [] } = useQuery({
    queryKey: waitingKey(chatId),
    queryFn: ({ client, signal }) => readWaiting(chatId, client.getQueryData(waitingKey(chatId)), signal),
  })
  const { data: newest } = useQuery(query('executions.list', { chatId, limit: RECENT_RUNS }))
  const { live, status, connected, gone } = useFollowedChat(chatId)
  const { outgoing, lastSent, add, again, end, drop } = useOutgoing(chatId)

  const messages = history.data?.messages
  const listed = useMemo(() => new Set(messages?.map(({ executionId }) => executionId)), [messages])

  // A listed message is no longer being sent.
  useEffect(() => {
    for (const { key, executionId } of outgoing) if (executionId && listed.has(executionId)) drop(key)
  }, [outgoing, listed, drop])

  useEffect(() => {
    for (const { key, executionId, hasEnded } of outgoing) {
      const run = executionId && live.get(executionId)
      if (run && run.status !== 'running' && !hasEnded) end(key)
    }
  }, [outgoing, live, end])

  /** The warnings of ended runs, which their messages do not have. */
  const warnings = useMemo(
    () => new Map(newest?.executions.map((run) => [run.id, run.warnings.map(({ text }) => text)])),
    [newest],
  )

  const unlisted = unlistedMessages(outgoing, waiting, messages ?? [], live)
  const running = [...live.values()].filter((run) => run.status === 'running')
  const isAsked = ({ executionId }: { executionId: string }) =>
    listed.has(executionId) || unlisted.some((each) => each.executionId === executionId)

  const askers = new Map([...(messages ?? []), ...waiting].map(({ executionId, userId }) => [executionId, userId]))
  const mayStop = useMayStop(info?.agentId ?? '', askers, [...running, ...unlisted])
  return {
    info,
    title: info?.title ?? history.data?.title,
    status: status ?? info?.status ?? 'standby',
    history,
    messages,
    warnings,
    connected,
    gone,
    live,
    running,
    /** Runs whose question is not listed yet, such as a run that another person has just started. */
    unasked: running.filter((run) => !isAsked(run)),
    unlisted,
    lastSent,
    add: (text: string, details: Outgoing['details']) =>
      add(
        text,
        details,
        [...listed].reduce((last, id) => (id > last ? id : last), ''),
      ),
    again,
    drop,
    mayStop,
  }
}

/**
 * Returns whether the person may stop a run of `runs`. An admin and the owner of the agent may stop those of others,
 * too.
 */
function useMayStop(agentId: string, askers: ReadonlyMap<string, string | undefined>, runs: readonly OfRun[]) {
  const { user, role } = useSession()
  const isOfOther = ({ executionId }: OfRun) => (askers.get(executionId ?? '') ?? user.id) !== user.id
  const isAgentNeeded = role === 'member' && agentId !== '' && runs.some(isOfOther)
  const agent = useQuery({ ...query('agents.get', { id: agentId }), enabled: isAgentNeeded, retry: false })
  const mayStopAll = role !== 'member' || agent.data?.agent.userId === user.id
  return (run: OfRun) => mayStopAll || !isOfOther(run)
}

export type Chat = ReturnType<typeof useChat>

import { Bot } from 'lucide-react'
import { type ReactNode, useMemo, useState } from 'react'
import { callMutation, toFailure } from '../../api.ts'
import { Empty, Loading, Problem, Reconnecting } from '../../components/page.tsx'
import { useOnce } from '../../once.ts'
import { useAction } from '../../queries.ts'
import { texts } from '../../texts.ts'
import { Composer } from './composer.tsx'
import { Conversation } from './conversation.tsx'
import { GoneAgent, useIsAgentGone } from './gone-agent.tsx'
import { GoneChat } from './gone-chat.tsx'
import { NextSteps } from './next-steps.tsx'
import { Scroller } from './scroller.tsx'
import { wayThrough } from './tree.ts'
import { useChat } from './use-chat.ts'

const t = texts.chat

export type About = {
  title: string
  ownerId: string | undefined
  spaceId: string | undefined
  agentId: string | null
  agentName: string
  status: string
}

/** The conversation of a chat and its composer. `header` stands above, and gets the chat's state. */
export function Thread({ chatId, header }: { chatId: string; header?: (about: About) => ReactNode }) {
  const chat = useChat(chatId)
  const { info, history, messages, running, unlisted, status, add, mayStop } = chat
  /** The messages that the person has chosen at forks, by their parents. */
  const [chosen, setChosen] = useState<Readonly<Record<string, string>>>({})
  const way = useMemo(() => wayThrough(messages ?? [], chosen), [messages, chosen])

  const cancel = useAction((id: string) => callMutation('executions.cancel', { id }))
  const once = useOnce()
  const regenerate = useAction(
    (replaces: string) => once('chats.send', { id: chatId, regenerate: true, replaces, background: true }),
    { changes: ['chats.messages'], onDone: () => setChosen({}) },
  )
  const say = (text: string, mediaIds: string[], where: { replaces?: string } = {}) => {
    const sessionId = where.replaces ? undefined : way.at(-1)?.message.branch
    add(text, { ...(mediaIds.length > 0 && { mediaIds }), ...(sessionId && { sessionId }), ...where })
    setChosen({})
    return null
  }

  const isAgentGone = useIsAgentGone(info?.agentId, messages && (way.at(-1)?.message.executionId ?? null))

  const problem = chat.gone ?? (messages ? null : history.error)
  if (problem && [403, 404].includes(toFailure(problem).status)) return <GoneChat chatId={chatId} />
  if (problem) {
    return (
      <div className="flex-1 p-6">
        <Problem error={problem} retry={() => void history.refetch()} />
      </div>
    )
  }

  const title = chat.title ?? t.title
  const agentName = info?.agentName ?? t.agent
  const isEmpty = messages?.length === 0 && unlisted.length === 0 && running.length === 0
  const stoppable = running.filter(mayStop)
  const stop = () => {
    for (const { executionId } of stoppable) cancel.mutate(executionId)
  }
  return (
    <section className="flex min-h-0 min-w-0 flex-1 flex-col" aria-label={title}>
      {header?.({
        title,
        ownerId: info?.ownerId,
        spaceId: info?.spaceId,
        agentId: isAgentGone ? null : (info?.agentId ?? null),
        agentName,
        status,
      })}
      {!chat.connected && <Reconnecting />}
      <Scroller sent={chat.lastSent}>
        {history.isPending && <Loading lines={4} />}
        {isEmpty && !isAgentGone && <Empty icon={Bot} title={t.emptyTitle(agentName)} text={t.emptyText} />}
        <Conversation
          chat={chat}
          way={way}
          agentName={agentName}
          isReadOnly={isAgentGone}
          onAgain={regenerate.mutate}
          onEdit={(replaces, text) => say(text, [], { replaces })}
          onChoose={(parentId, id) => setChosen({ ...chosen, [parentId]: id })}
          onCancel={cancel.mutate}
        />
        {history.error && messages && <Problem error={history.error} retry={() => history.refetch()} />}
        {messages && messages.length > 0 && messages.length <= 2 && running.length === 0 && header && <NextSteps />}
      </Scroller>
      <div className="mx-auto w-full max-w-3xl px-4 pb-4 print:hidden">
        {isAgentGone ? (
          <GoneAgent chatId={chatId} onStop={stoppable.length ? stop : null} />
        ) : (
          <Composer
            isQuiet={!header}
            draftKey={chatId}
            placeholder={t.placeholder(agentName)}
            onSend={say}
            // Until then the branch is unknown that a message continues, and with it the agent.
            isWaiting={!messages}
            onStop={stoppable.length ? stop : null}
          />
        )}
      </div>
    </section>
  )
}

import { useQuery } from '@tanstack/react-query'
import { ArrowDown, Bot } from 'lucide-react'
import { type ReactNode, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'react'
import { callMutation, toFailure } from '../../api.ts'
import { Button } from '../../components/button.tsx'
import { Empty, Loading, Problem, Reconnecting } from '../../components/page.tsx'
import { query, useAction } from '../../queries.ts'
import { useSession } from '../../session.ts'
import { texts } from '../../texts.ts'
import { useAuthors } from './authors.ts'
import { Composer } from './composer.tsx'
import { messagesKey, readMessages, readWaiting, useFollowedChat, waitingKey } from './follow.ts'
import { GoneChat } from './gone-chat.tsx'
import { type LiveRun, textOf } from './live.ts'
import { NextSteps } from './next-steps.tsx'
import { useOutgoing } from './outgoing.ts'
import { RunView } from './run-view.tsx'
import { type Message, wayThrough } from './tree.ts'
import { Turn } from './turn.tsx'
import { AnswerTurn, hasEnded, MessageEnd, OutgoingTurn, QuestionTurn, SummaryLine } from './turns.tsx'
import { unlistedMessages, waitsForTurn } from './waiting.ts'

const t = texts.chat

/** Number of turns at the end that are rendered whole at once. */
const RECENT = 30

export type About = {
  title: string
  ownerId: string | undefined
  agentId: string | null
  agentName: string
  status: string
}

/** The conversation of a chat and its composer. `header` stands above, and gets the chat's state. */
export function Thread({ chatId, header }: { chatId: string; header?: (about: About) => ReactNode }) {
  const chat = useQuery(query('chats.get', { id: chatId }))
  const history = useQuery({
    queryKey: messagesKey(chatId),
    queryFn: ({ signal }) => readMessages(chatId, signal),
  })
  const waiting = useQuery({
    queryKey: waitingKey(chatId),
    queryFn: ({ client, signal }) => readWaiting(chatId, client.getQueryData(waitingKey(chatId)), signal),
  })
  const { live, status: followed, connected, gone } = useFollowedChat(chatId)
  const { outgoing, add, again, end, drop } = useOutgoing(chatId)
  const [chosen, setChosen] = useState<Readonly<Record<string, string>>>({})
  const { user, role } = useSession()

  const messages = history.data?.messages
  const way = useMemo(() => wayThrough(messages ?? [], chosen), [messages, chosen])
  const listed = useMemo(() => new Set(messages?.map(({ executionId }) => executionId)), [messages])
  const answers = useMemo(
    () => new Map(way.flatMap(({ message }) => (message.role === 'assistant' ? [[message.executionId, message]] : []))),
    [way],
  )
  const onWay = useMemo(() => new Set(way.map(({ message }) => message.executionId)), [way])

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

  const info = chat.data?.chat
  const status = followed ?? info?.status ?? 'standby'
  const unlisted = unlistedMessages(outgoing, waiting.data ?? [], messages ?? [], live)
  const authorOf = useAuthors([...(messages ?? []), ...unlisted])
  const running = [...live.values()].filter((run) => run.status === 'running')
  // Runs whose question is not listed yet, such as a run that another person has just started.
  const unasked = running.filter(
    ({ executionId }) => !listed.has(executionId) && !unlisted.some((each) => each.executionId === executionId),
  )
  const title = info?.title ?? history.data?.title ?? t.title

  const asker = new Map(messages?.map(({ executionId, userId }) => [executionId, userId]))
  for (const { executionId, userId } of waiting.data ?? []) asker.set(executionId, userId)
  const isOfOther = ({ executionId }: { executionId: string | null }) =>
    (asker.get(executionId ?? '') ?? user.id) !== user.id
  const agentId = info?.agentId ?? ''
  // The owner of the agent may stop the runs of others, too.
  const isAgentNeeded = role === 'member' && agentId !== '' && [...running, ...unlisted].some(isOfOther)
  const agent = useQuery({ ...query('agents.get', { id: agentId }), enabled: isAgentNeeded, retry: false })
  const mayStopAll = role !== 'member' || agent.data?.agent.userId === user.id
  const mayStop = (run: { executionId: string | null }) => mayStopAll || !isOfOther(run)
  const stoppable = running.filter(mayStop)

  const cancel = useAction((id: string) => callMutation('executions.cancel', { id }))
  const leaf = way.at(-1)?.message

  const say = (text: string, mediaIds: string[], where: { replaces?: string } = {}) => {
    const sessionId = where.replaces ? undefined : leaf?.branch
    add(text, (idempotencyKey) =>
      callMutation('chats.send', {
        id: chatId,
        message: text,
        background: true,
        idempotencyKey,
        ...(mediaIds.length > 0 && { mediaIds }),
        ...(sessionId && { sessionId }),
        ...where,
      }),
    )
    setChosen({})
    return null
  }
  const regenerate = useAction(
    (replaces: string) => callMutation('chats.send', { id: chatId, regenerate: true, replaces, background: true }),
    { changes: ['chats.messages'], onDone: () => setChosen({}) },
  )

  const problem = gone ?? (messages ? null : history.error)
  if (problem) {
    if (![403, 404].includes(toFailure(problem).status)) {
      return (
        <div className="flex-1 p-6">
          <Problem error={problem} retry={() => void history.refetch()} />
        </div>
      )
    }
    return <GoneChat chatId={chatId} />
  }

  const isEmpty = messages?.length === 0 && unlisted.length === 0 && running.length === 0
  const agentName = info?.agentName ?? t.agent

  // One list with runs as keys, so that an answer stays the same element while its run is followed, listed and ended.
  const turns: { key: string; text: string; node: ReactNode }[] = []
  const addRun = (run: LiveRun, onAgain?: () => void) =>
    turns.push({
      key: `answer-${run.executionId}`,
      text: textOf(run),
      node: (
        <AnswerTurn agentName={agentName} text={textOf(run)} busy={run.status === 'running'}>
          <RunView run={run} onAgain={onAgain} />
        </AnswerTurn>
      ),
    })
  const addSummary = ({ id, summary }: Message) => {
    if (summary) turns.push({ key: `summary-${id}`, text: '', node: <SummaryLine text={summary} /> })
  }
  for (const { message, siblings } of way) {
    const { executionId } = message
    const run = live.get(executionId)
    const answer = message.role === 'user' ? answers.get(executionId) : message
    const questionId = message.role === 'user' ? message.id : message.parentId
    const onAgain = questionId ? () => regenerate.mutate(questionId) : undefined
    if (message.role === 'user') {
      turns.push({
        key: `question-${executionId}`,
        text: message.content,
        node: (
          <QuestionTurn
            message={message}
            author={authorOf(message)}
            siblings={siblings}
            busy={run?.status === 'running'}
            onChoose={(id) => setChosen({ ...chosen, [message.parentId ?? '']: id })}
            onEdit={(text) => say(text, [], { replaces: message.id })}
            onAgain={onAgain}
            onlyQuestion={!answer && !run}
          />
        ),
      })
      if (run && !answer) addRun(run, onAgain)
      else if (!answer && hasEnded(message)) {
        turns.push({
          key: `answer-${executionId}`,
          text: '',
          node: (
            <AnswerTurn agentName={agentName} text="">
              <MessageEnd message={message} onAgain={onAgain} />
            </AnswerTurn>
          ),
        })
      }
      addSummary(message)
      continue
    }
    turns.push({
      key: `answer-${executionId}`,
      text: message.content,
      node: (
        <AnswerTurn
          agentName={agentName}
          message={message}
          text={message.content}
          busy={run?.status === 'running'}
          onAgain={onAgain}
        >
          {run && <RunView run={run} onAgain={onAgain} />}
        </AnswerTurn>
      ),
    })
    addSummary(message)
  }
  for (const one of unlisted) {
    const { executionId } = one
    if (executionId && onWay.has(executionId)) continue
    const run = executionId ? live.get(executionId) : undefined
    const waits = !run || waitsForTurn(run, running)
    turns.push({
      key: `question-${executionId ?? one.key}`,
      text: one.text,
      node: (
        <OutgoingTurn
          one={one}
          author={authorOf(one)}
          onAgain={() => again(one)}
          onDrop={() => drop(one.key)}
          onCancel={executionId && run && mayStop(one) ? () => cancel.mutate(executionId) : undefined}
          waits={waits}
        />
      ),
    })
    if (run && !waits) addRun(run)
  }
  for (const run of unasked) addRun(run)

  return (
    <section className="flex min-h-0 min-w-0 flex-1 flex-col" aria-label={title}>
      {header?.({ title, ownerId: info?.ownerId, agentId: info?.agentId ?? null, agentName, status })}
      {!connected && <Reconnecting />}
      <Scroller sent={outgoing.at(-1)?.key}>
        {history.isPending && <Loading lines={4} />}
        {history.error && messages && <Problem error={history.error} retry={() => history.refetch()} />}
        {isEmpty && <Empty icon={Bot} title={t.emptyTitle(agentName)} text={t.emptyText} />}
        {turns.map(({ key, text, node }, index) => (
          <Turn key={key} text={text} isFar={index < turns.length - RECENT}>
            {node}
          </Turn>
        ))}
        {messages && messages.length > 0 && messages.length <= 2 && running.length === 0 && header && <NextSteps />}
      </Scroller>
      <div className="mx-auto w-full max-w-3xl px-4 pb-4 print:hidden">
        <Composer
          isQuiet={!header}
          draftKey={chatId}
          placeholder={t.placeholder(agentName)}
          onSend={say}
          onStop={
            stoppable.length
              ? () => {
                  for (const { executionId } of stoppable) cancel.mutate(executionId)
                }
              : null
          }
        />
      </div>
    </section>
  )
}

/**
 * Stays at the end while the person is there, whatever grows or shrinks: the content, the composer or the window. Goes
 * there with each message that the person sends (`sent`).
 */
function Scroller({ sent, children }: { sent: string | undefined; children: ReactNode }) {
  const box = useRef<HTMLDivElement>(null)
  const content = useRef<HTMLDivElement>(null)
  const [isAtEnd, setIsAtEnd] = useState(true)
  const follow = useRef(true)

  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => {
      if (follow.current && box.current) box.current.scrollTop = box.current.scrollHeight
    })
    for (const { current } of [box, content]) if (current) observer.observe(current)
    return () => observer.disconnect()
  }, [])

  useLayoutEffect(() => {
    if (!sent || !box.current) return
    follow.current = true
    box.current.scrollTop = box.current.scrollHeight
  }, [sent])

  const toEnd = () => box.current?.scrollTo({ top: box.current.scrollHeight })
  return (
    <div className="relative min-h-0 flex-1">
      <div
        ref={box}
        className="h-full overflow-y-auto"
        role="log"
        aria-label={t.conversation}
        tabIndex={0}
        onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
          const near = scrollHeight - scrollTop - clientHeight < 80
          follow.current = near
          setIsAtEnd(near)
        }}
      >
        <div ref={content} className="mx-auto flex max-w-3xl flex-col gap-3 px-4 py-6">
          {children}
        </div>
      </div>
      {!isAtEnd && (
        <Button icon={ArrowDown} small onClick={toEnd} className="absolute bottom-3 left-1/2 -translate-x-1/2 shadow">
          {t.toEnd}
        </Button>
      )}
    </div>
  )
}

import { type ReactNode, useMemo } from 'react'
import { useAuthors } from './authors.ts'
import { type LiveRun, textOf } from './live.ts'
import { RunView } from './run-view.tsx'
import type { Message, Place } from './tree.ts'
import { Turn } from './turn.tsx'
import { AnswerTurn, hasEnded, MessageEnd, OutgoingTurn, QuestionTurn, SummaryLine } from './turns.tsx'
import type { Chat } from './use-chat.ts'
import { waitsForTurn } from './waiting.ts'

/** Number of turns at the end that are rendered whole at once. */
const RECENT = 30

type Props = {
  chat: Chat
  /** The visible messages. */
  way: readonly Place[]
  agentName: string
  /** Whether the chat takes no more messages. */
  isReadOnly: boolean
  /** Answers a question once more, in a new branch. */
  onAgain: (questionId: string) => void
  onEdit: (questionId: string, text: string) => void
  onChoose: (parentId: string, messageId: string) => void
  onCancel: (executionId: string) => void
}

type Row = { key: string; text: string; node: ReactNode }

/**
 * The turns of a chat: listed messages with their runs, then messages that are not listed yet. One list with runs as
 * keys, so that an answer stays the same element while its run is followed, listed and ended.
 */
export function Conversation({ chat, way, agentName, isReadOnly, onAgain, onEdit, onChoose, onCancel }: Props) {
  const { live, messages = [], warnings, running, unlisted, unasked, again, drop, mayStop } = chat
  const authorOf = useAuthors([...messages, ...unlisted])
  const onWay = useMemo(() => new Set(way.map(({ message }) => message.executionId)), [way])
  const answered = useMemo(
    () => new Set(way.flatMap(({ message }) => (message.role === 'assistant' ? message.executionId : []))),
    [way],
  )
  const againFor = (questionId: string | null) => (questionId && !isReadOnly ? () => onAgain(questionId) : undefined)

  const runRow = (run: LiveRun, onRunAgain?: () => void): Row => ({
    key: `answer-${run.executionId}`,
    text: textOf(run),
    node: (
      <AnswerTurn agentName={agentName} text={textOf(run)} busy={run.status === 'running'}>
        <RunView run={run} onAgain={onRunAgain} />
      </AnswerTurn>
    ),
  })

  const summaryRows = ({ id, summary }: Message): Row[] =>
    summary ? [{ key: `summary-${id}`, text: '', node: <SummaryLine text={summary} /> }] : []

  /** Stands below a question without a listed answer: its run, or the end of it. */
  const unansweredRows = (message: Message, run: LiveRun | undefined): Row[] => {
    const onRunAgain = againFor(message.id)
    if (run) return [runRow(run, onRunAgain)]
    if (!hasEnded(message)) return []
    const node = (
      <AnswerTurn agentName={agentName} text="">
        <MessageEnd message={message} warnings={warnings.get(message.executionId)} onAgain={onRunAgain} />
      </AnswerTurn>
    )
    return [{ key: `answer-${message.executionId}`, text: '', node }]
  }

  const questionRows = ({ message, siblings }: Place): Row[] => {
    const run = live.get(message.executionId)
    const hasAnswer = answered.has(message.executionId)
    const node = (
      <QuestionTurn
        message={message}
        author={authorOf(message)}
        siblings={siblings}
        busy={run?.status === 'running'}
        onChoose={(id) => onChoose(message.parentId ?? '', id)}
        onEdit={isReadOnly ? undefined : (text) => onEdit(message.id, text)}
        onAgain={againFor(message.id)}
        onlyQuestion={!hasAnswer && !run}
      />
    )
    return [
      { key: `question-${message.executionId}`, text: message.content, node },
      ...(hasAnswer ? [] : unansweredRows(message, run)),
      ...summaryRows(message),
    ]
  }

  const answerRows = ({ message }: Place): Row[] => {
    const run = live.get(message.executionId)
    const onRunAgain = againFor(message.parentId)
    const node = (
      <AnswerTurn
        agentName={agentName}
        message={message}
        warnings={warnings.get(message.executionId)}
        text={message.content}
        busy={run?.status === 'running'}
        onAgain={onRunAgain}
      >
        {run && <RunView run={run} onAgain={onRunAgain} />}
      </AnswerTurn>
    )
    return [{ key: `answer-${message.executionId}`, text: message.content, node }, ...summaryRows(message)]
  }

  const unlistedRows = (one: Chat['unlisted'][number]): Row[] => {
    const { executionId } = one
    if (executionId && onWay.has(executionId)) return []
    const run = executionId ? live.get(executionId) : undefined
    const waits = !run || waitsForTurn(run, running)
    const node = (
      <OutgoingTurn
        one={one}
        author={authorOf(one)}
        onAgain={isReadOnly ? undefined : () => again(one)}
        onDrop={() => drop(one.key)}
        onCancel={executionId && run && mayStop(one) ? () => onCancel(executionId) : undefined}
        waits={waits}
      />
    )
    const question = { key: `question-${executionId ?? one.key}`, text: one.text, node }
    return run && !waits ? [question, runRow(run)] : [question]
  }

  const rows = [
    ...way.flatMap((place) => (place.message.role === 'user' ? questionRows(place) : answerRows(place))),
    ...unlisted.flatMap(unlistedRows),
    ...unasked.map((run) => runRow(run)),
  ]
  return rows.map(({ key, text, node }, index) => (
    <Turn key={key} text={text} isFar={index < rows.length - RECENT}>
      {node}
    </Turn>
  ))
}

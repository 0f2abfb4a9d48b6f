import { Link } from '@tanstack/react-router'
import { ChevronLeft, ChevronRight, ListTree, Paperclip, Pencil, RotateCcw } from 'lucide-react'
import { memo, type ReactNode, useRef, useState } from 'react'
import { BASE } from '../../api.ts'
import { Avatar } from '../../components/badge.tsx'
import { Button, IconButton } from '../../components/button.tsx'
import { CopyButton } from '../../components/code.tsx'
import { Markdown } from '../../components/markdown.tsx'
import { cn } from '../../lib/class-names.ts'
import { isComposing } from '../../lib/composing.ts'
import { moment, size } from '../../lib/format.ts'
import { useSession } from '../../session.ts'
import { texts } from '../../texts.ts'
import { useUnsaved } from '../../unsaved.ts'
import { Ended, Warnings } from './run-view.tsx'
import { Reasoning, Summary, ToolCall } from './tool-call.tsx'
import type { Message } from './tree.ts'
import type { Outgoing } from './waiting.ts'

const t = texts.chat

const ACTIONS =
  'flex items-center opacity-0 transition-opacity group-focus-within:opacity-100 group-hover:opacity-100 [@media(hover:none)]:opacity-100'

function Bubble({ text, faint }: { text: string; faint?: boolean }) {
  return (
    <div
      dir="auto"
      className={cn(
        'max-w-[85%] whitespace-pre-wrap rounded-2xl rounded-br-md bg-tint px-4 py-2.5 text-base [unicode-bidi:isolate]',
        faint && 'opacity-70',
      )}
    >
      {text}
    </div>
  )
}

/** The time of a message. */
const Written = ({ at }: { at: string }) => (
  <time dateTime={at} className="px-1 text-soft text-xs tabular-nums">
    {moment(at)}
  </time>
)

const Author = ({ name }: { name: string }) => (
  <p className="flex max-w-[85%] items-center gap-1.5 text-soft text-xs">
    <Avatar name={name} size="small" />
    <bdi className="truncate">{name}</bdi>
  </p>
)

const PICTURES = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp'])

/** The files that went with a message: pictures are shown, all can be downloaded. */
function Attachments({ files }: { files: Message['attachments'] }) {
  const { organization } = useSession()
  if (!files.length) return null
  return (
    <ul className="flex max-w-[85%] flex-wrap justify-end gap-2" aria-label={t.attachments}>
      {files.map(({ id, name, mimeType, size: bytes }) => {
        const href = `${BASE}/api/v1/media/${id}/content?organization=${organization?.id ?? ''}`
        return (
          <li key={id}>
            <a
              href={href}
              download={name}
              className="flex max-w-64 items-center gap-2 rounded-lg border border-line bg-panel px-2.5 py-1.5 text-xs hover:bg-hover"
            >
              {PICTURES.has(mimeType) ? (
                // A chat may have gigabytes of photographs above what the person sees.
                <img
                  src={href}
                  alt=""
                  loading="lazy"
                  decoding="async"
                  className="size-10 shrink-0 rounded object-cover"
                />
              ) : (
                <Paperclip size={14} aria-hidden className="shrink-0 text-soft" />
              )}
              <bdi className="truncate">{name}</bdi>
              <span className="shrink-0 text-soft">{size(bytes)}</span>
            </a>
          </li>
        )
      })}
    </ul>
  )
}

type QuestionProps = {
  message: Message
  /** The name of its author, if another person wrote it. */
  author: string | null
  siblings: readonly Message[]
  busy: boolean
  onChoose: (id: string) => void
  onEdit: ((text: string) => void) | undefined
  onAgain: (() => void) | undefined
  /** It has no answer. */
  onlyQuestion: boolean
}

/** A message of the person, with actions to edit it or answer it again, and the branches that start here. */
export function QuestionTurn(props: QuestionProps) {
  const { message, author, siblings, busy, onChoose, onEdit, onAgain, onlyQuestion } = props
  const [draft, setDraft] = useState<string | null>(null)
  useUnsaved(draft !== null && draft !== message.content)
  const wasEdited = useRef(false)
  if (draft !== null) wasEdited.current = true
  const cancel = () => (draft === message.content || confirm(texts.discard)) && setDraft(null)
  const index = siblings.findIndex(({ id }) => id === message.id)
  if (draft !== null && onEdit) {
    return (
      <form
        className="rounded-2xl border border-accent bg-raised p-3"
        onSubmit={(event) => {
          event.preventDefault()
          if (!draft.trim()) return
          onEdit(draft)
          setDraft(null)
        }}
      >
        <label className="sr-only" htmlFor={`edit-${message.id}`}>
          {t.editMessage}
        </label>
        <textarea
          id={`edit-${message.id}`}
          // biome-ignore lint/a11y/noAutofocus: the person has just asked to write here
          autoFocus
          dir="auto"
          className="field min-h-20 text-base"
          value={draft}
          onChange={({ target }) => setDraft(target.value)}
          onKeyDown={(event) => event.key === 'Escape' && !isComposing(event) && cancel()}
        />
        <div className="mt-2 flex items-center justify-end gap-2">
          <span className="mr-auto text-soft text-xs">{t.editHelp}</span>
          <Button onClick={cancel}>{texts.cancel}</Button>
          <Button kind="primary" type="submit" disabled={!draft.trim()}>
            {t.send}
          </Button>
        </div>
      </form>
    )
  }
  return (
    <article className="group flex flex-col items-end gap-1" data-turn="user" aria-label={author ?? t.you}>
      {author !== null && <Author name={author} />}
      <Attachments files={message.attachments} />
      <Bubble text={message.content} />
      <div className="flex min-h-8 items-center">
        <div className={ACTIONS}>
          <Written at={message.createdAt} />
          <CopyButton text={message.content} />
          {onEdit && (
            <IconButton
              label={t.editMessage}
              icon={Pencil}
              disabled={busy}
              autoFocus={wasEdited.current}
              onClick={() => setDraft(message.content)}
            />
          )}
          {onlyQuestion && onAgain && <IconButton label={t.again} icon={RotateCcw} disabled={busy} onClick={onAgain} />}
        </div>
        {siblings.length > 1 && (
          <div className="flex items-center text-soft text-xs">
            <IconButton
              label={t.earlier}
              icon={ChevronLeft}
              disabled={index === 0}
              onClick={() => onChoose(siblings[index - 1]?.id ?? message.id)}
            />
            <span role="img" aria-label={t.branchOf(index + 1, siblings.length)}>
              {`${index + 1}/${siblings.length}`}
            </span>
            <IconButton
              label={t.later}
              icon={ChevronRight}
              disabled={index === siblings.length - 1}
              onClick={() => onChoose(siblings[index + 1]?.id ?? message.id)}
            />
          </div>
        )}
      </div>
    </article>
  )
}

/** A line below the turns that a summary covers, with the summary. */
export const SummaryLine = ({ text }: { text: string }) => (
  <div className="border-line border-t border-dashed pt-1">
    <Summary text={text} />
  </div>
)

type AnswerProps = {
  agentName: string
  text: string
  busy?: boolean
  message?: Message
  /** Those of the run of the message, if it is one of the newest. */
  warnings?: readonly string[] | undefined
  onAgain?: (() => void) | undefined
  /** The live run in place of the message, while it is followed. */
  children?: ReactNode
}

/** An answer of the agent. */
export function AnswerTurn({ agentName, text, busy, message, warnings, onAgain, children }: AnswerProps) {
  return (
    <article className="group flex gap-3" data-turn="assistant" aria-label={agentName} aria-busy={busy || undefined}>
      <div className="hidden pt-0.5 sm:block">
        <Avatar name={agentName} />
      </div>
      <div className="min-w-0 flex-1">
        {children || (message && <MessageText message={message} />)}
        {!children && message && <MessageEnd message={message} warnings={warnings} onAgain={onAgain} />}
        {!busy && (
          <div className={cn(ACTIONS, 'mt-1')}>
            {text && <CopyButton text={text} />}
            {onAgain && <IconButton label={t.again} icon={RotateCcw} onClick={onAgain} />}
            {message && (
              <Link
                to="/runs/$runId"
                params={{ runId: message.executionId }}
                aria-label={t.lookAtRun}
                title={t.lookAtRun}
                className="inline-flex size-8 items-center justify-center rounded-md text-soft hover:bg-hover hover:text-ink"
              >
                <ListTree size={16} aria-hidden />
              </Link>
            )}
            {message && <Written at={message.createdAt} />}
          </div>
        )}
      </div>
    </article>
  )
}

/** An answer that was not followed, as the chat lists it. */
const MessageText = memo(function MessageText({ message }: { message: Message }) {
  return (
    <>
      {message.reasoning && <Reasoning text={message.reasoning} active={false} />}
      {message.toolCalls.map((call) => (
        <ToolCall key={call.id} call={call} waits={false} running={false} />
      ))}
      {message.content && <Markdown text={message.content} />}
    </>
  )
})

const isCancelled = ({ stopReason }: Message) => stopReason === 'cancelled'

/** Returns whether the run of a message ended without completing. */
export const hasEnded = (message: Message): boolean => message.code !== undefined || isCancelled(message)

type EndProps = {
  message: Message
  /** Those of its run, if it is one of the newest. */
  warnings: readonly string[] | undefined
  onAgain: (() => void) | undefined
}

/** The end of a run with warnings or without a whole answer, by its last message: the question if there is no answer. */
export const MessageEnd = ({ message, warnings, onAgain }: EndProps) => (
  <>
    <Warnings warnings={warnings ?? [t.cutOff[message.stopReason ?? ''] ?? []].flat()} />
    {hasEnded(message) && (
      <Ended
        executionId={message.executionId}
        isCancelled={isCancelled(message)}
        code={message.code ?? ''}
        reason={message.detail ?? message.code ?? ''}
        onAgain={onAgain}
      />
    )}
  </>
)

type OutgoingProps = {
  one: Outgoing
  author: string | null
  onAgain: (() => void) | undefined
  onDrop: () => void
  onCancel: (() => void) | undefined
  waits: boolean
}

/** A message that the chat does not list yet, with the reason if sending failed. */
export function OutgoingTurn({ one, author, onAgain, onDrop, onCancel, waits }: OutgoingProps) {
  return (
    <article className="mb-5 flex flex-col items-end gap-1" data-turn="user" aria-label={author ?? t.you}>
      {author !== null && <Author name={author} />}
      <Bubble text={one.text} faint={one.executionId === null} />
      {one.error !== null ? (
        <div role="alert" className="flex flex-wrap items-center justify-end gap-2 text-danger">
          <span>{t.notSent(one.error)}</span>
          {onAgain && (
            <Button small onClick={onAgain}>
              {texts.tryAgain}
            </Button>
          )}
          <Button small kind="ghost" onClick={onDrop}>
            {t.discard}
          </Button>
        </div>
      ) : (
        waits && (
          <div className="flex items-center gap-2 text-soft text-xs">
            <p role="status">{one.executionId ? t.queued : t.sending}</p>
            {onCancel && (
              <button type="button" className="underline hover:text-ink" onClick={onCancel}>
                {texts.cancel}
              </button>
            )}
          </div>
        )
      )}
    </article>
  )
}

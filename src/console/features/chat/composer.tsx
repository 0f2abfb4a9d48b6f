import { ArrowUp, LoaderCircle, Paperclip, RotateCcw, Square, X } from 'lucide-react'
import { type DragEvent, type ReactNode, useEffect, useId, useLayoutEffect, useRef, useState } from 'react'
import { IconButton } from '../../components/button.tsx'
import { toast } from '../../components/toast.tsx'
import { cn } from '../../lib/class-names.ts'
import { isComposing } from '../../lib/composing.ts'
import { size } from '../../lib/format.ts'
import { texts } from '../../texts.ts'
import { useAttachments } from './attachments.ts'
import { readDraft, storeDraft } from './drafts.ts'

const t = texts.chat

type Props = {
  /** Key under which the unsent text survives a reload of this tab. */
  draftKey: string
  placeholder: string
  /** The text stays if this fails. */
  onSend: (text: string, mediaIds: string[]) => Promise<unknown> | null
  onStop: (() => void) | null
  /** Whether the page does not know yet where a message goes. It is sent as soon as the page does. */
  isWaiting?: boolean
  /** Leaves the focus unchanged. */
  isQuiet?: boolean
  children?: ReactNode
}

/**
 * Returns the files of a paste. Office programs add a picture of the text that was copied: a formatted text is none,
 * and a file that was copied has its name as plain text only.
 */
function filesIn({ types, files }: DataTransfer): File[] {
  return types.includes('text/plain') && types.includes('text/html') ? [] : [...files]
}

/**
 * Returns whether the device has a mouse. Keyboards on the screens of the others cannot write a new line with Shift.
 */
const hasMouse = () => matchMedia('(hover: hover)').matches

/** The input of a message: Enter sends, files come by drop, paste or the button. */
export function Composer({ draftKey, placeholder, onSend, onStop, isWaiting = false, isQuiet, children }: Props) {
  const [text, setText] = useState(() => readDraft(draftKey))
  const [isOver, setIsOver] = useState(false)
  const { attachments, add, again, remove, clear } = useAttachments(draftKey)
  const id = useId()
  const input = useRef<HTMLTextAreaElement>(null)
  const picker = useRef<HTMLInputElement>(null)

  useEffect(() => storeDraft(draftKey, text), [text, draftKey])

  // Safari before 26.2 and Firefox before 152 size no field by its content.
  // biome-ignore lint/correctness/useExhaustiveDependencies: its height is that of the text
  useLayoutEffect(() => {
    const { current } = input
    if (!current || CSS.supports('field-sizing', 'content')) return
    current.style.height = 'auto'
    current.style.height = `${current.scrollHeight}px`
  }, [text])

  useEffect(() => {
    if (!isQuiet && hasMouse()) input.current?.focus()
  }, [isQuiet])

  const isUploading = attachments.some(({ mediaId, error }) => !mediaId && !error)
  const [isSending, setIsSending] = useState(false)
  const hasFailed = attachments.some(({ error }) => error !== null)
  const isReady = text.trim() !== '' && !isUploading && !isSending

  const [isAsked, setIsAsked] = useState(false)

  const send = () => {
    if (!isReady) return
    if (hasFailed) return toast(t.filesFailed, 'bad')
    if (isWaiting) return setIsAsked(true)
    const mediaIds = attachments.flatMap(({ mediaId }) => mediaId ?? [])
    const done = () => {
      setText('')
      // The page may show another composer by now.
      storeDraft(draftKey, '')
      clear()
    }
    const sent = onSend(text, mediaIds)
    if (!sent) return done()
    // Until then the text and the files are not the person's to change: they end with the message.
    setIsSending(true)
    // The caller shows the failure.
    sent.then(done, () => {}).finally(() => setIsSending(false))
  }

  // biome-ignore lint/correctness/useExhaustiveDependencies: sends what is written when the page is ready
  useEffect(() => {
    if (!isAsked || isWaiting) return
    setIsAsked(false)
    send()
  }, [isAsked, isWaiting])

  // The browser itself puts a dropped text into the input.
  const hasFiles = ({ dataTransfer }: DragEvent) => !isSending && dataTransfer.types.includes('Files')

  const drop = (event: DragEvent) => {
    if (!hasFiles(event)) return
    event.preventDefault()
    setIsOver(false)
    add([...event.dataTransfer.files])
  }

  return (
    <form
      className={cn(
        'rounded-2xl border bg-raised shadow-sm focus-within:border-accent',
        isOver ? 'border-accent bg-tint' : 'border-edge',
      )}
      onSubmit={(event) => {
        event.preventDefault()
        send()
      }}
      onDragOver={(event) => {
        if (!hasFiles(event)) return
        event.preventDefault()
        setIsOver(true)
      }}
      onDragLeave={() => setIsOver(false)}
      onDrop={drop}
    >
      {attachments.length > 0 && (
        <ul className="flex flex-wrap gap-2 px-3 pt-3" aria-label={t.attachments}>
          {attachments.map((file) => (
            <li
              key={file.key}
              className={cn(
                'flex max-w-full items-center gap-2 rounded-lg border bg-panel py-0.5 pr-0.5 pl-2.5 text-xs',
                file.error ? 'border-danger text-danger' : 'border-line',
              )}
            >
              {!file.mediaId && !file.error && (
                <LoaderCircle size={13} aria-label={t.uploads} className="animate-spin text-soft" />
              )}
              <bdi className="truncate">{file.name}</bdi>
              <span className="shrink-0 text-soft">{file.error ?? size(file.size)}</span>
              {file.error && (
                <IconButton
                  label={t.uploadAgain(file.name)}
                  icon={RotateCcw}
                  className="size-6"
                  onClick={() => again(file.key)}
                />
              )}
              <IconButton
                label={t.remove(file.name)}
                icon={X}
                className="size-6"
                disabled={isSending}
                onClick={() => remove(file.key)}
              />
            </li>
          ))}
        </ul>
      )}
      <label className="sr-only" htmlFor={id}>
        {t.message}
      </label>
      <textarea
        id={id}
        data-composer
        ref={input}
        rows={1}
        dir="auto"
        value={text}
        readOnly={isSending}
        placeholder={isOver ? t.dropHere : placeholder}
        className="block max-h-[40vh] min-h-12 w-full resize-none bg-transparent placeholder:truncate px-4 pt-3 pb-1 text-base outline-none field-sizing-content"
        onChange={({ target }) => setText(target.value)}
        onPaste={(event) => {
          const files = filesIn(event.clipboardData)
          if (!files.length || isSending) return
          event.preventDefault()
          add(files)
        }}
        onKeyDown={(event) => {
          if (event.key !== 'Enter' || event.shiftKey || isComposing(event) || !hasMouse()) return
          event.preventDefault()
          send()
        }}
      />
      <div className="flex items-center gap-1 px-2 pb-2">
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          onChange={({ target }) => {
            add([...(target.files ?? [])])
            target.value = ''
          }}
        />
        <IconButton label={t.attach} icon={Paperclip} disabled={isSending} onClick={() => picker.current?.click()} />
        <div className="flex min-w-0 flex-1 items-center">{children}</div>
        {onStop && <IconButton label={t.stop} icon={Square} className="border border-line text-ink" onClick={onStop} />}
        <button
          type="submit"
          aria-label={isSending ? t.sending : t.send}
          title={t.send}
          disabled={!isReady}
          className="inline-flex size-8 shrink-0 items-center justify-center rounded-lg bg-accent text-on-accent disabled:opacity-40"
        >
          {isSending ? (
            <LoaderCircle size={17} aria-hidden className="animate-spin" />
          ) : (
            <ArrowUp size={17} aria-hidden />
          )}
        </button>
      </div>
    </form>
  )
}

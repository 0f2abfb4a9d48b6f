import { X } from 'lucide-react'
import { createContext, type MouseEvent, type ReactNode, useContext, useEffect, useId, useRef, useState } from 'react'
import { cn } from '../lib/class-names.ts'
import { useIsThere } from '../lib/is-there.ts'
import { texts } from '../texts.ts'
import { useUnsaved } from '../unsaved.ts'
import { Button, IconButton } from './button.tsx'

type Props = {
  open: boolean
  onClose: () => void
  title: string
  description?: string
  children: ReactNode
  /** `side` is a sheet from the left. */
  as?: 'dialog' | 'wide' | 'side'
  /** Stays open after a click beside it. */
  isFirm?: boolean
}

const SHAPES = {
  dialog: 'm-auto mt-[10vh] max-h-[80vh] w-[min(32rem,calc(100vw-2rem))] rounded-xl border p-5',
  wide: 'm-auto mt-[5vh] max-h-[90vh] w-[min(56rem,calc(100vw-2rem))] rounded-xl border p-5',
  side: 'm-0 h-dvh max-h-none w-72 max-w-[85vw] border-r',
} as const

type Frame = {
  /** Whether the person has written in the dialog. */
  isWrittenIn: boolean
  /** Remembers that the person has written, for a field whose choice is no event of input. */
  write: () => void
  /** Calls a function that closes the dialog, unless the person wants to keep what a form in it has. */
  leave: (close: () => void) => void
}

const Around = createContext<Frame>({ isWrittenIn: false, write: () => {}, leave: (close) => close() })

/** The dialog around a form. A form outside of dialogs has no input that its frame could lose. */
export const useFrame = (): Frame => useContext(Around)

/**
 * A modal dialog of the browser, which traps the focus, makes the page behind it inert and closes with Escape. A
 * library would add 15 KB to the first load.
 */
export function Dialog({ open, ...rest }: Props) {
  return open ? <Opened {...rest} /> : null
}

/** Returns whether an event of a dialog happened beside it, on the backdrop. */
function isBeside({ target, currentTarget, clientX, clientY }: MouseEvent<HTMLElement>): boolean {
  const { left, right, top, bottom } = currentTarget.getBoundingClientRect()
  return target === currentTarget && (clientX < left || clientX > right || clientY < top || clientY > bottom)
}

function Opened({ onClose, title, description, children, as = 'dialog', isFirm }: Omit<Props, 'open'>) {
  const box = useRef<HTMLDialogElement>(null)
  // A click beside the dialog must not lose its input.
  const [isWrittenIn, setIsWrittenIn] = useState(false)
  const write = () => setIsWrittenIn(true)
  useUnsaved(isWrittenIn)
  // A selection that begins in the dialog may end beside it.
  const beganBeside = useRef(false)
  const id = useId()
  const leave = (close: () => void) => {
    const isForm = isWrittenIn && box.current?.querySelector('form')
    if (!isForm || confirm(texts.discard)) close()
  }
  useEffect(() => {
    const before = document.activeElement
    if (!box.current?.open) box.current?.showModal()
    // The first focus would otherwise be on the close button.
    box.current?.querySelector<HTMLElement>('input:not([hidden]), textarea, select')?.focus()
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus()
    }
  }, [])
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes it
    <dialog
      ref={box}
      aria-labelledby={`${id}-title`}
      aria-describedby={description ? `${id}-text` : undefined}
      className={cn(
        'animate-appear overflow-y-auto border-line bg-raised text-ink shadow-xl backdrop:bg-black/40',
        SHAPES[as],
      )}
      onCancel={(event) => {
        // Ignores the same event of a file input within the dialog.
        if (event.target !== box.current) return
        event.preventDefault()
        leave(onClose)
      }}
      // A browser may close it by itself after a second Escape.
      onClose={({ target }) => target === box.current && onClose()}
      onInput={write}
      onPointerDown={(event) => {
        beganBeside.current = isBeside(event)
      }}
      onClick={(event) => beganBeside.current && isBeside(event) && !isWrittenIn && !isFirm && onClose()}
    >
      {as === 'side' ? (
        <h2 id={`${id}-title`} className="sr-only">
          {title}
        </h2>
      ) : (
        <div className="mb-4 flex items-start justify-between gap-4">
          <div className="min-w-0">
            <h2 id={`${id}-title`} className="line-clamp-3 font-semibold text-lg" dir="auto">
              {title}
            </h2>
            {description && (
              <p id={`${id}-text`} className="mt-1 line-clamp-6 text-soft">
                {description}
              </p>
            )}
          </div>
          <IconButton label={texts.close} icon={X} onClick={() => leave(onClose)} className="-mt-1 -mr-1" />
        </div>
      )}
      <Around value={{ isWrittenIn, write, leave }}>{children}</Around>
    </dialog>
  )
}

type ConfirmProps = {
  onClose: () => void
  title: string
  text: string
  action: string
  onConfirm: () => Promise<unknown>
  children?: ReactNode
}

/** Asks for confirmation of an irreversible action. */
export function Confirm({ onClose, title, text, action, onConfirm, children }: ConfirmProps) {
  const [busy, setBusy] = useState(false)
  const isThere = useIsThere()
  return (
    <Dialog open onClose={onClose} title={title} description={text}>
      {children}
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>{texts.cancel}</Button>
        <Button
          kind="danger"
          busy={busy}
          onClick={() => {
            setBusy(true)
            // The action itself reports its failure.
            onConfirm()
              .then(
                () => isThere() && onClose(),
                () => {},
              )
              .finally(() => setBusy(false))
          }}
        >
          {action}
        </Button>
      </div>
    </Dialog>
  )
}

type ConfirmDeleteProps = {
  t: { deleteTitle: string; deleteText: string; delete: string }
  remove: { mutateAsync: (given: undefined) => Promise<unknown> }
  onClose: () => void
}

/** Asks for confirmation before an object is deleted, with the texts of its kind. */
export const ConfirmDelete = ({ t, remove, onClose }: ConfirmDeleteProps) => (
  <Confirm
    onClose={onClose}
    title={t.deleteTitle}
    text={t.deleteText}
    action={t.delete}
    onConfirm={() => remove.mutateAsync(undefined)}
  />
)

import { type ReactNode, useLayoutEffect, useRef, useState } from 'react'
import { texts } from '../texts.ts'
import { useUnsaved } from '../unsaved.ts'
import { Button } from './button.tsx'
import { Clashing } from './clashing.tsx'
import { useFrame } from './dialog.tsx'
import { Clash } from './edits.ts'
import { usePageGuard } from './guard.ts'
import { Fallible } from './refused.tsx'

type Props = {
  /** The action that sends the form. */
  save: {
    mutate: (given: undefined, options: { onSuccess: () => void }) => void
    error: unknown
    isPending: boolean
    reset: () => void
  }
  isReady: boolean
  /** The text of the button. Default: "Save". */
  label?: string
  /** Closes the dialog around the form. */
  onCancel?: () => void
  className?: string
  /** Another button, such as one that deletes. */
  more?: ReactNode
  /** Whether the person may not save it. */
  isReadOnly?: boolean
  children: ReactNode
}

/**
 * A form with its failure and its button. A page with input in it stays when the session ends. In a dialog it can be
 * cancelled, and the person is asked before a link, a reload or the way back loses what the dialog has.
 */
export function Form({ save, isReady, label = texts.save, onCancel, className, more, isReadOnly, children }: Props) {
  const { isWrittenIn, leave } = useFrame()
  const [isWritten, setIsWritten] = useState(false)
  useUnsaved(isWritten)
  const clash = save.error instanceof Clash ? save.error : null
  // A page that follows a saved form is no loss.
  usePageGuard(isWrittenIn && !save.isPending)
  // A field that is disabled meanwhile loses the focus.
  const focused = useRef<Element | null>(null)
  useLayoutEffect(() => {
    const isLost = save.error && document.activeElement === document.body
    if (isLost && focused.current instanceof HTMLElement) focused.current.focus()
  }, [save.error])
  const button = !isReadOnly && (
    <Button kind="primary" type="submit" disabled={!isReady} busy={save.isPending}>
      {label}
    </Button>
  )
  return (
    <form
      className={className}
      onInput={() => setIsWritten(true)}
      onSubmit={(event) => {
        event.preventDefault()
        focused.current = document.activeElement
        save.mutate(undefined, { onSuccess: () => setIsWritten(false) })
      }}
    >
      <Fallible error={clash ? null : save.error}>
        {/* A dialog that closes would lose later letters. */}
        <fieldset disabled={isReadOnly || (save.isPending && !!onCancel)} className="contents">
          {children}
        </fieldset>
      </Fallible>
      {clash && (
        <Clashing
          clash={clash}
          giveUp={() => {
            clash.giveUp()
            save.reset()
          }}
        />
      )}
      {onCancel ? (
        <div className="mt-3 flex flex-wrap justify-end gap-2">
          {more}
          <Button onClick={() => leave(onCancel)}>{texts.cancel}</Button>
          {button}
        </div>
      ) : (
        button
      )}
    </form>
  )
}

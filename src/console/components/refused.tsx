import { createContext, type ReactNode, useContext, useLayoutEffect, useRef, useState } from 'react'
import { refusalOf } from '../api.ts'
import type { Refusal } from '../lib/refusals.ts'
import { Problem } from './page.tsx'

const Refused = createContext<Refusal | null>(null)

/** Returns the reason why the server refuses a field, or a part of it. */
export function useRefusal(field: string | undefined): string | null {
  const refusal = useContext(Refused)
  return field && `${refusal?.field}.`.startsWith(`${field}.`) ? (refusal?.reason ?? null) : null
}

/**
 * The fields of a form with the failure of their last save: beside the refused field until its value changes, or else
 * at the end.
 */
export function Fallible({ error, children }: { error: unknown; children: ReactNode }) {
  const box = useRef<HTMLDivElement>(null)
  const [isBeside, setIsBeside] = useState(false)
  const [answered, setAnswered] = useState<unknown>(null)
  useLayoutEffect(() => {
    const field = error ? box.current?.querySelector<HTMLElement>('[aria-invalid]') : null
    field?.closest('details')?.setAttribute('open', '')
    field?.focus()
    setIsBeside(!!field)
  }, [error])
  return (
    <Refused value={error && error !== answered ? refusalOf(error) : null}>
      <div
        ref={box}
        className="contents"
        onInput={({ target }) => target instanceof Element && target.matches('[aria-invalid]') && setAnswered(error)}
      >
        {children}
      </div>
      {Boolean(error) && !isBeside && (
        <div className="my-3" data-save>
          <Problem error={error} />
        </div>
      )}
    </Refused>
  )
}

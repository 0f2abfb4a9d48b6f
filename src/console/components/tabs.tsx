import { type KeyboardEvent, type ReactNode, useEffect, useId } from 'react'
import { cn } from '../lib/class-names.ts'

type Props<Name extends string> = {
  label: string
  tabs: Readonly<Partial<Record<Name, string>>>
  value: Name
  onChange: (name: Name) => void
  children: ReactNode
}

/** Tabs over a panel; arrows move between them. */
export function Tabs<Name extends string>({ label, tabs, value, onChange, children }: Props<Name>) {
  const id = useId()
  const names = Object.keys(tabs) as Name[]
  useEffect(() => {
    const tab = document.getElementById(`${id}-${value}`)
    const list = tab?.parentElement
    if (!list) return
    const end = tab.offsetLeft + tab.offsetWidth - list.clientWidth
    list.scrollLeft = Math.min(Math.max(list.scrollLeft, end), tab.offsetLeft)
  }, [id, value])
  const onKeyDown = (event: KeyboardEvent<HTMLDivElement>) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key]
    if (!step) return
    const next = names[(names.indexOf(value) + step + names.length) % names.length] as Name
    onChange(next)
    document.getElementById(`${id}-${next}`)?.focus()
  }
  return (
    <>
      <div
        role="tablist"
        aria-label={label}
        className="relative mb-4 flex gap-1 overflow-x-auto border-line border-b"
        onKeyDown={onKeyDown}
      >
        {names.map((name) => (
          <button
            key={name}
            id={`${id}-${name}`}
            type="button"
            role="tab"
            aria-selected={name === value}
            aria-controls={`${id}-panel`}
            tabIndex={name === value ? 0 : -1}
            className={cn(
              '-mb-px whitespace-nowrap border-b-2 px-3 py-2 -outline-offset-2',
              name === value ? 'border-accent font-medium' : 'border-transparent text-soft hover:text-ink',
            )}
            onClick={() => onChange(name)}
          >
            {tabs[name]}
          </button>
        ))}
      </div>
      <div id={`${id}-panel`} role="tabpanel" aria-labelledby={`${id}-${value}`}>
        {children}
      </div>
    </>
  )
}

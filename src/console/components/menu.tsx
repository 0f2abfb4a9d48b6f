import { Check, type LucideIcon } from 'lucide-react'
import {
  cloneElement,
  createContext,
  type KeyboardEvent,
  type ReactElement,
  type ReactNode,
  useContext,
  useId,
  useRef,
  useState,
} from 'react'
import { cn } from '../lib/class-names.ts'
import { place } from './place.ts'

// A menu by WAI-ARIA in the browser's own popover. A library would add 25 KB to the first load.

const Close = createContext<() => void>(() => {})

type TriggerProps = Record<string, unknown> & { ref?: unknown }

/** A menu that opens under a button. */
export function Menu({
  trigger,
  children,
  align = 'end',
}: {
  trigger: ReactElement<TriggerProps>
  children: ReactNode
  align?: 'start' | 'end'
}) {
  const id = useId()
  const button = useRef<HTMLElement>(null)
  const box = useRef<HTMLDivElement>(null)
  const [open, setOpen] = useState(false)

  const items = () => [...(box.current?.querySelectorAll<HTMLElement>('[role^=menuitem]:not([disabled])') ?? [])]

  const onKeyDown = (event: KeyboardEvent) => {
    const all = items()
    const at = all.indexOf(document.activeElement as HTMLElement)
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key]
    if (to !== undefined) {
      event.preventDefault()
      all[(to + all.length) % all.length]?.focus()
    } else if (event.key === 'Tab') box.current?.hidePopover()
    else if (/^\p{L}$/u.test(event.key)) {
      const rest = [...all.slice(at + 1), ...all.slice(0, at + 1)]
      rest.find(({ textContent }) => textContent?.trim().toLowerCase().startsWith(event.key.toLowerCase()))?.focus()
    }
  }

  return (
    <>
      {cloneElement(trigger, {
        ref: button,
        'aria-haspopup': 'menu',
        'aria-expanded': open,
        'aria-controls': open ? id : undefined,
        popoverTarget: id,
      })}
      <div
        ref={box}
        id={id}
        role="menu"
        popover="auto"
        tabIndex={-1}
        className="fixed inset-auto m-0 max-h-[70vh] min-w-44 max-w-80 overflow-y-auto rounded-lg border border-line bg-raised p-1 text-ink shadow-lg"
        onKeyDown={onKeyDown}
        onToggle={(event) => {
          const isOpen = event.newState === 'open'
          setOpen(isOpen)
          if (!isOpen || !box.current || !button.current) return
          place(box.current, button.current.getBoundingClientRect(), align)
          items()[0]?.focus()
        }}
      >
        <Close value={() => box.current?.hidePopover()}>{children}</Close>
      </div>
    </>
  )
}

type ItemProps = {
  children: ReactNode
  onSelect: () => void
  icon?: LucideIcon
  danger?: boolean
  /** Makes it one of several exclusive choices. */
  checked?: boolean
  disabled?: boolean
}

export function MenuItem({ children, onSelect, icon: Icon, danger, checked, disabled }: ItemProps) {
  const close = useContext(Close)
  return (
    <button
      type="button"
      tabIndex={-1}
      disabled={disabled}
      className={cn(
        'flex w-full items-center gap-2 rounded px-2 py-1.5 text-left text-sm outline-none hover:bg-hover focus:bg-hover disabled:opacity-50',
        danger && 'text-danger',
      )}
      {...(checked === undefined ? { role: 'menuitem' } : { role: 'menuitemradio', 'aria-checked': checked })}
      onClick={() => {
        close()
        onSelect()
      }}
    >
      {Icon && <Icon size={15} aria-hidden className={cn('shrink-0', !danger && 'text-soft')} />}
      <span className="min-w-0 flex-1 truncate">{children}</span>
      {checked && <Check size={15} aria-hidden className="shrink-0 text-accent" />}
    </button>
  )
}

export const MenuLabel = ({ children }: { children: ReactNode }) => (
  <div role="presentation" className="truncate px-2 py-1.5 text-soft text-xs">
    {children}
  </div>
)

export const MenuLine = () => <hr className="my-1 border-line" />

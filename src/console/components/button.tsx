import type { LucideIcon } from 'lucide-react'
import type { ComponentProps } from 'react'
import { cn } from '../lib/class-names.ts'

const KINDS = {
  primary: 'bg-accent text-on-accent border-transparent hover:bg-accent-hover',
  plain: 'bg-raised text-ink border-line hover:bg-hover',
  ghost: 'bg-transparent text-ink border-transparent hover:bg-hover',
  danger: 'bg-transparent text-danger border-line hover:bg-danger-tint',
} as const

type Props = ComponentProps<'button'> & {
  kind?: keyof typeof KINDS
  icon?: LucideIcon
  busy?: boolean
  small?: boolean
}

const BASE =
  'inline-flex items-center justify-center gap-1.5 rounded-md border font-medium shrink-0 max-w-full text-center disabled:opacity-50 aria-disabled:opacity-50 transition-colors'

/** A button. While it is busy it ignores clicks, and keeps the focus, which a disabled button loses. */
export function Button({ kind = 'plain', icon: Icon, busy, small, className, children, onClick, ...rest }: Props) {
  const size = small ? 'min-h-7 px-2 text-xs' : 'min-h-8 px-3 text-sm'
  return (
    <button
      type="button"
      className={cn(BASE, size, KINDS[kind], className)}
      aria-disabled={busy || undefined}
      aria-busy={busy || undefined}
      onClick={busy ? (event) => event.preventDefault() : onClick}
      {...rest}
    >
      {Icon && <Icon size={15} aria-hidden className="shrink-0" />}
      {children}
    </button>
  )
}

/** An icon button. Its label is read aloud, and appears on hover. */
export function IconButton({
  label,
  icon: Icon,
  className,
  ...rest
}: ComponentProps<'button'> & { label: string; icon: LucideIcon }) {
  return (
    <button
      type="button"
      aria-label={label}
      title={label}
      className={cn(
        'inline-flex size-8 shrink-0 items-center justify-center rounded-md text-soft hover:bg-hover hover:text-ink disabled:opacity-40 print:hidden',
        className,
      )}
      {...rest}
    >
      <Icon size={16} aria-hidden />
    </button>
  )
}

/** Class names that make a link look like a button. */
export const buttonClass = (kind: keyof typeof KINDS = 'plain') => cn(BASE, 'min-h-8 px-3 text-sm', KINDS[kind])

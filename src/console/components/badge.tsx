import type { ReactNode } from 'react'
import { cn } from '../lib/class-names.ts'

const KINDS = {
  plain: 'bg-hover text-soft',
  accent: 'bg-tint text-accent',
  good: 'bg-good-tint text-good',
  bad: 'bg-danger-tint text-danger',
  warn: 'bg-warn-tint text-warn',
} as const

export type BadgeKind = keyof typeof KINDS

export const Badge = ({ kind = 'plain', children }: { kind?: BadgeKind; children: ReactNode }) => (
  <span
    className={cn(
      'inline-flex shrink-0 items-center gap-1 whitespace-nowrap rounded-full px-2 py-0.5 font-medium text-xs',
      KINDS[kind],
    )}
  >
    {children}
  </span>
)

/** The colours of states: of runs, chats, tasks and missions alike. */
const STATES: Readonly<Record<string, BadgeKind>> = {
  running: 'accent',
  working: 'accent',
  in_progress: 'accent',
  completed: 'good',
  done: 'good',
  approved: 'good',
  failed: 'bad',
  error: 'bad',
  denied: 'bad',
  paused: 'warn',
  needs_attention: 'warn',
}

export const kindOf = (state: string): BadgeKind => STATES[state] ?? 'plain'

const SIZES = {
  small: 'size-5 rounded-md text-[0.625rem]',
  medium: 'size-7 text-xs',
  large: 'size-10 text-sm',
} as const

/** The initials of a name on a colour derived from the name. */
export function Avatar({ name, size = 'medium' }: { name: string; size?: keyof typeof SIZES }) {
  let hue = 0
  for (const letter of name) hue = (hue * 31 + (letter.codePointAt(0) ?? 0)) % 360
  const initials = (name.match(/[\p{L}\p{M}\p{N}]+/gu) ?? name.match(/\S/gu) ?? ['?'])
    .slice(0, 2)
    .map((word) => [...word][0])
    .join('')
    .toUpperCase()
  return (
    <span
      aria-hidden
      data-initials={initials}
      className={cn(
        'inline-flex shrink-0 before:content-[attr(data-initials)] items-center justify-center rounded-lg font-semibold',
        SIZES[size],
      )}
      style={{
        background: `light-dark(oklch(0.92 0.05 ${hue}), oklch(0.35 0.05 ${hue}))`,
        color: `light-dark(oklch(0.38 0.09 ${hue}), oklch(0.9 0.05 ${hue}))`,
      }}
    />
  )
}

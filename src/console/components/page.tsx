import { CircleAlert, type LucideIcon, Plus, WifiOff } from 'lucide-react'
import { type ReactNode, useEffect, useRef } from 'react'
import { refusalOf, toFailure } from '../api.ts'
import { useBadge } from '../features/approvals/badge.ts'
import { announce } from '../lib/announce.ts'
import { cn } from '../lib/class-names.ts'
import { texts } from '../texts.ts'
import { Button } from './button.tsx'
import { useScrollPlace } from './scroll-place.ts'

/** Sets the title of the browser's tab, with the number of waiting approvals. Screen readers announce each new one. */
export function useTitle(title: string): void {
  const waiting = useBadge()
  useEffect(() => {
    document.title = `${waiting ? `(${waiting}) ` : ''}${title} · Muster`
  }, [title, waiting])
  useEffect(() => announce(title, 'title-announcer'), [title])
}

type PageProps = { title: string; actions?: ReactNode; children: ReactNode; wide?: boolean; lead?: ReactNode }

/** A page with a heading, its actions, and scrolling content. */
export function Page({ title, actions, children, wide, lead }: PageProps) {
  useTitle(title)
  const box = useRef<HTMLDivElement>(null)
  useScrollPlace(box)
  return (
    <div ref={box} className="h-full overflow-y-auto">
      <div className={cn('mx-auto px-4 pt-5 pb-16 sm:px-6', wide ? 'max-w-[90rem]' : 'max-w-5xl')}>
        <header className="mb-4 flex flex-wrap items-center justify-between gap-x-4 gap-y-2">
          <div className="min-w-0">
            <h1 className="line-clamp-3 wrap-anywhere font-semibold text-xl" dir="auto">
              {title}
            </h1>
            {lead && <div className="mt-0.5 line-clamp-4 text-soft">{lead}</div>}
          </div>
          {actions && <div className="flex flex-wrap items-center gap-2">{actions}</div>}
        </header>
        {children}
      </div>
    </div>
  )
}

/** The text of an empty list, with the next step. */
export function Empty({
  icon: Icon,
  title,
  text,
  children,
}: {
  icon?: LucideIcon
  title: string
  text?: string
  children?: ReactNode
}) {
  return (
    <div className="flex flex-col items-center gap-2 rounded-xl border border-line border-dashed px-6 py-14 text-center">
      {Icon && <Icon size={28} aria-hidden className="text-soft" />}
      <p className="font-medium text-base">{title}</p>
      {text && <p className="max-w-md text-soft">{text}</p>}
      {children && <div className="mt-2 flex flex-wrap justify-center gap-2">{children}</div>}
    </div>
  )
}

/** Shows a failure, with a button to retry. */
export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  const refusal = refusalOf(error)
  const { message, detail } = refusal
    ? { message: texts.fields.of(refusal.field, refusal.reason), detail: null }
    : toFailure(error)
  const box = useRef<HTMLDivElement>(null)
  // It may stand below the end of a long form. Elsewhere the person may be reading.
  useEffect(() => {
    if (box.current?.closest('form, dialog, [data-save]')) box.current.scrollIntoView({ block: 'nearest' })
  }, [])
  return (
    <div
      ref={box}
      role="alert"
      className="flex flex-wrap items-start gap-3 rounded-xl border border-line bg-danger-tint px-4 py-3"
    >
      <CircleAlert size={18} aria-hidden className="mt-0.5 shrink-0 text-danger" />
      <div className="min-w-0 flex-1 basis-40">
        <p className="font-medium">{message}</p>
        {detail && <p className="text-soft">{detail}</p>}
      </div>
      {retry && <Button onClick={retry}>{texts.tryAgain}</Button>}
    </div>
  )
}

type ChoiceProps<Name extends string> = {
  label: string
  options: Readonly<Record<Name, string>>
  value: Name
  onChange: (value: Name) => void
  className?: string
}

/** Buttons of which one is pressed, such as the lists of a page. */
export const Choice = <Name extends string>({ label, options, value, onChange, className }: ChoiceProps<Name>) => (
  <fieldset className={cn('flex min-w-0 flex-wrap rounded-lg border border-line p-0.5', className)}>
    <legend className="sr-only">{label}</legend>
    {(Object.keys(options) as Name[]).map((name) => (
      <button
        key={name}
        type="button"
        aria-pressed={value === name}
        className={cn('rounded-md px-2.5 py-1', value === name ? 'bg-hover font-medium' : 'text-soft')}
        onClick={() => onChange(name)}
      >
        {options[name]}
      </button>
    ))}
  </fieldset>
)

/** Says that the connection is lost. */
export const Reconnecting = () => (
  <p role="status" className="flex items-center justify-center gap-2 bg-warn-tint px-4 py-1.5 text-warn">
    <WifiOff size={15} aria-hidden />
    {texts.chat.reconnects}
  </p>
)

/** Grey lines in place of loading content. */
export function Loading({ lines = 5 }: { lines?: number }) {
  return (
    <div role="status" className="flex flex-col gap-3">
      <span className="sr-only">{texts.loading}</span>
      {Array.from({ length: lines }, (_, index) => (
        <div
          // biome-ignore lint/suspicious/noArrayIndexKey: they are all alike
          key={index}
          className="h-9 animate-pulse rounded-md bg-hover"
          style={{ width: `${100 - ((index * 13) % 40)}%` }}
        />
      ))}
    </div>
  )
}

export type Watched<Data> = {
  data: Data | undefined
  error: unknown
  isPending: boolean
  /** Whether the data are of the query before, such as those of a shorter search. */
  isPlaceholderData?: boolean
  refetch: () => unknown
}

/** Shows data that other data will soon replace. Fades them after a moment. */
const Outdated = ({ isOutdated, children }: { isOutdated: boolean; children: ReactNode }) => (
  <div className={isOutdated ? 'animate-fade' : 'contents'} aria-busy={isOutdated || undefined}>
    {isOutdated && (
      <p role="status" className="sr-only">
        {texts.loading}
      </p>
    )}
    {children}
  </div>
)

/**
 * Shows a query: loading, failed, or its data. Existing data stays visible when a later read fails, and until those of
 * another search are read.
 */
export function Loaded<Data>({
  query,
  lines,
  children,
}: {
  query: Watched<Data>
  lines?: number
  children: (data: Data) => ReactNode
}) {
  if (query.data !== undefined)
    return <Outdated isOutdated={query.isPlaceholderData ?? false}>{children(query.data)}</Outdated>
  if (query.error) return <Problem error={query.error} retry={() => query.refetch()} />
  return <Loading lines={lines ?? 5} />
}

/** A section of a page in a frame. */
export function Section({ title, actions, children }: { title: string; actions?: ReactNode; children: ReactNode }) {
  return (
    <section className="mb-6">
      <div className="mb-2 flex min-h-8 flex-wrap items-center justify-between gap-x-3 gap-y-1">
        <h2 className="font-semibold text-base">{title}</h2>
        {actions}
      </div>
      {children}
    </section>
  )
}

/** A list in a frame, one row below the other. */
export const Rows = ({ children }: { children: ReactNode }) => (
  <ul className="divide-y divide-line overflow-hidden rounded-xl border border-line bg-canvas">{children}</ul>
)

/** The name of a row above its details. `width`: class of the width that it wants before the row wraps. */
export const RowText = ({ name, children, width }: { name: string; children?: ReactNode; width?: string }) => (
  <div className={cn('min-w-0 flex-1', width)}>
    <p className="truncate font-medium" dir="auto">
      {name}
    </p>
    {children && <p className="truncate text-soft text-xs">{children}</p>}
  </div>
)

/** The head of a list that can be added to: an explanation, and the button that adds. */
export const ListHead = ({ help, action, onAdd }: { help: string; action: string; onAdd: () => void }) => (
  <div className="mb-4 flex flex-wrap items-center justify-between gap-3">
    <p className="min-w-0 flex-1 basis-60 text-soft">{help}</p>
    <Button kind="primary" icon={Plus} onClick={onAdd}>
      {action}
    </Button>
  </div>
)

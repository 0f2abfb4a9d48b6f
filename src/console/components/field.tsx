import { type ComponentProps, type ReactNode, useId, useState } from 'react'
import { cn } from '../lib/class-names.ts'
import { texts } from '../texts.ts'
import { fits } from './combobox.ts'
import { Problem } from './page.tsx'
import { useRefusal } from './refused.tsx'

/** A label, its control, and a help text, or in its place the reason why the value is refused. */
export function Field({
  label,
  help,
  error: own,
  field,
  children,
  className,
}: Labelled & {
  children: (id: { id: string; 'aria-describedby'?: string; 'aria-invalid'?: true }) => ReactNode
  className?: string
}) {
  const id = useId()
  const refused = useRefusal(field)
  const error = own ?? refused
  const message = error ?? help
  return (
    <div className={cn('mb-3', className)}>
      <label htmlFor={id} className="mb-1 block font-medium">
        {label}
      </label>
      {children({
        id,
        ...(message ? { 'aria-describedby': `${id}-help` } : {}),
        ...(error ? { 'aria-invalid': true } : {}),
      })}
      {message && (
        <p id={`${id}-help`} dir="auto" className={cn('mt-1 text-xs', error ? 'text-danger' : 'text-soft')}>
          {message}
        </p>
      )}
    </div>
  )
}

type Labelled = {
  label: string
  help?: ReactNode
  error?: string | null | undefined
  /** The name of the field in the API, whose refusals appear here. */
  field?: string | undefined
}
type Wrapped = Labelled & {
  wrap?: string
  /** Whether a program reads the text, letter by letter, such as JSON or the id of a model. */
  isCode?: boolean | undefined
}

/**
 * Keeps the browser from other letters than the typed ones. Phones correct words and begin them with a capital letter.
 * Devices of Apple write curly quotes and dashes unless the spelling is not checked.
 */
const AS_TYPED = { autoCapitalize: 'none', autoCorrect: 'off', spellCheck: false } as const

/** Without it browsers put the digits that follow a year into the year, which may have six. */
const LAST_DAYS: Readonly<Record<string, string>> = { date: '9999-12-31', 'datetime-local': '9999-12-31T23:59' }

export function TextField(props: ComponentProps<'input'> & Wrapped) {
  const { label, help, error, field, wrap, isCode, className, ...rest } = props
  const max = LAST_DAYS[rest.type ?? '']
  return (
    <Field label={label} help={help} error={error} field={field} className={wrap ?? ''}>
      {(given) => (
        <input dir="auto" className={cn('field', className)} max={max} {...(isCode && AS_TYPED)} {...given} {...rest} />
      )}
    </Field>
  )
}

/** The name of a thing that needs one. */
export const NameField = ({ value, onChange }: { value: string; onChange: (name: string) => void }) => (
  <TextField
    label={texts.name}
    field="name"
    required
    maxLength={200}
    value={value}
    onChange={({ target }) => onChange(target.value)}
  />
)

export function TextArea(props: ComponentProps<'textarea'> & Wrapped) {
  const { label, help, error, field, wrap, isCode, className, ...rest } = props
  const code = isCode && AS_TYPED
  return (
    <Field label={label} help={help} error={error} field={field} className={wrap ?? ''}>
      {(given) => (
        <textarea dir="auto" className={cn('field max-h-[60vh] min-h-20', className)} {...code} {...given} {...rest} />
      )}
    </Field>
  )
}

type Option = { value: string; label: string }

export function Select({
  label,
  help,
  error,
  field,
  options,
  wrap,
  className,
  ...rest
}: ComponentProps<'select'> & Wrapped & { options: readonly Option[] }) {
  return (
    <Field label={label} help={help} error={error} field={field} className={wrap ?? ''}>
      {(given) => (
        <select className={cn('field', className)} {...given} {...rest}>
          {options.map(({ value, label: text }) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  )
}

const VISIBILITIES = ['private', 'organization', 'public'] as const

type Visibility = (typeof VISIBILITIES)[number]

/** A choice of the users who can see an object. */
export const VisibilitySelect = ({
  value,
  onChange,
}: {
  value: Visibility
  onChange: (visibility: Visibility) => void
}) => (
  <Select
    label={texts.visibility}
    field="visibility"
    options={VISIBILITIES.map((visibility) => ({ value: visibility, label: texts.visibilities[visibility] }))}
    value={value}
    onChange={({ target }) => onChange(target.value as Visibility)}
  />
)

/** A checkbox with its label. */
export const Check = ({
  label,
  checked,
  onChange,
  className,
}: {
  label: string
  checked: boolean
  onChange: (checked: boolean) => void
  className?: string
}) => (
  <label className={cn('flex items-start gap-2', className)}>
    <input
      type="checkbox"
      className="mt-0.5 size-4 shrink-0 accent-accent"
      checked={checked}
      onChange={({ target }) => onChange(target.checked)}
    />
    {label}
  </label>
)

/** The state of options that are read from the server. */
type Reading = { isPending: boolean; error: unknown; retry: () => void }

/** A search of options by the server. `hasMore`: whether the options are only the first of many. */
type FoundOptions = { search: string; onSearch: (search: string) => void; hasMore: boolean }

/** Number of options from which on a list has a search. */
const MANY = 20

type TicksProps = {
  label: string
  help?: string | undefined
  options: readonly { value: string; label: string; detail?: string | null }[]
  value: readonly string[]
  onChange: (value: string[]) => void
  /** Stands in place of a list without options. */
  empty: ReactNode
  reading?: Reading
  found?: FoundOptions
}

/** A list of checkboxes. A long one has a search: of the given options, or by the server (`found`). */
export function Ticks({ label, help, options, value, onChange, empty, reading, found }: TicksProps) {
  const [typed, setTyped] = useState('')
  const search = found?.search ?? typed
  const isLong = options.length >= MANY || found?.hasMore || search !== ''
  const shown = found ? options : options.filter((option) => fits(`${option.label} ${option.detail ?? ''}`, search))
  return (
    <fieldset className="mb-4 min-w-0">
      <legend className="mb-1 font-medium">{label}</legend>
      {help && <p className="mb-1 text-soft text-xs">{help}</p>}
      {isLong && (
        <input
          type="search"
          dir="auto"
          className="field mb-1"
          aria-label={texts.searchIn(label)}
          placeholder={texts.search}
          maxLength={200}
          value={search}
          onChange={({ target }) => (found?.onSearch ?? setTyped)(target.value)}
          // A search changes nothing, and sends no form.
          onInput={(event) => event.stopPropagation()}
          onKeyDown={(event) => event.key === 'Enter' && event.preventDefault()}
        />
      )}
      {reading?.error ? (
        <Problem error={reading.error} retry={reading.retry} />
      ) : reading?.isPending ? (
        <p role="status" className="text-soft">
          {texts.loading}
        </p>
      ) : shown.length === 0 ? (
        <p role="status" className="text-soft">
          {search ? texts.palette.nothing : empty}
        </p>
      ) : (
        <div className="max-h-72 divide-y divide-line overflow-y-auto rounded-md border border-line">
          {shown.map((option) => (
            <label key={option.value} className="flex cursor-pointer items-start gap-2.5 px-3 py-2 hover:bg-hover">
              <input
                type="checkbox"
                className="mt-0.5 size-4 shrink-0 accent-accent"
                checked={value.includes(option.value)}
                onChange={({ target }) =>
                  onChange(target.checked ? [...value, option.value] : value.filter((each) => each !== option.value))
                }
              />
              <span className="min-w-0">
                <span className="block font-medium">
                  <bdi>{option.label}</bdi>
                </span>
                {option.detail && (
                  <span className="line-clamp-2 text-soft text-xs">
                    <bdi>{option.detail}</bdi>
                  </span>
                )}
              </span>
            </label>
          ))}
          {found?.hasMore && <p className="px-3 py-2 text-soft text-xs">{texts.typeForMore}</p>}
        </div>
      )}
    </fieldset>
  )
}

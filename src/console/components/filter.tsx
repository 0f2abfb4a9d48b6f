import { texts } from '../texts.ts'

type FilterProps = {
  label: string
  any?: string
  value: string | undefined
  options: Readonly<Record<string, string>>
  onChange: (value: string | undefined) => void
}

/** A choice of the rows of a list. `any`: the name of all rows. */
export function Filter({ label, any = texts.all, value, options, onChange }: FilterProps) {
  return (
    <label className="flex min-w-0 max-w-52 flex-col text-soft text-xs">
      {label}
      <select
        className="field w-auto min-w-28 max-w-full text-ink"
        value={value ?? ''}
        onChange={({ target }) => onChange(target.value || undefined)}
      >
        <option value="">{any}</option>
        {Object.entries(options).map(([name, text]) => (
          <option key={name} value={name}>
            {text}
          </option>
        ))}
      </select>
    </label>
  )
}

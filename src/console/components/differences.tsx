import { cn } from '../lib/class-names.ts'
import { diffLines } from '../lib/diff.ts'
import { pretty } from '../lib/format.ts'

/** Two values of a field, line by line side by side. */
export const Differences = ({ name, before, after }: { name: string; before: unknown; after: unknown }) => (
  // A narrow window scrolls it, also by the keyboard.
  <section tabIndex={0} aria-label={name} className="mb-4 overflow-x-auto rounded-lg border border-line bg-canvas">
    <h3 className="border-line border-b bg-panel px-3 py-1.5 font-mono text-xs">{name}</h3>
    <table aria-label={name} className="w-full min-w-[36rem] table-fixed font-mono text-xs">
      <tbody>
        {diffLines(pretty(before ?? ''), pretty(after ?? '')).map(({ left, right }, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: lines have no other name
          <tr key={index} className="align-top">
            <Side text={left} isOther={left !== right} kind="bg-danger-tint" mark="−" />
            <Side text={right} isOther={left !== right} kind="bg-good-tint" mark="+" />
          </tr>
        ))}
      </tbody>
    </table>
  </section>
)

const Side = ({ text, isOther, kind, mark }: { text: string | null; isOther: boolean; kind: string; mark: string }) => (
  <td dir="auto" className={cn('whitespace-pre-wrap break-words px-2 py-0.5', isOther && text !== null && kind)}>
    {isOther && text !== null && <span className="mr-1 select-none text-soft">{mark}</span>}
    {text}
  </td>
)

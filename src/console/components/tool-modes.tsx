import { X } from 'lucide-react'
import { BUILT_IN_TOOLS } from '../../lib/built-in-tools.ts'
import type { Output } from '../api.ts'
import { texts } from '../texts.ts'
import { IconButton } from './button.tsx'

const t = texts.toolModes

/** The modes of an agent, a space or an organization. */
type Permissions = Output<'agents.get'>['agent']['permissions']
type Mode = Permissions[number]['mode']

/** The entry of all tools without an entry of their own. */
const OTHERS = '*'

/** Returns whether an entry is of a tool that does not exist. */
export const isUnknown = ({ tool }: { tool: string }) => ![OTHERS, ...BUILT_IN_TOOLS].includes(tool)

/** The modes of the built-in tools. An entry whose tool does not exist can only be removed. */
export function ToolModes({
  help,
  value,
  onChange,
}: {
  help: string
  value: Permissions
  onChange: (permissions: Permissions) => void
}) {
  const entryOf = (tool: string) => value.find((each) => each.tool === tool)?.mode
  const others = entryOf(OTHERS) ?? 'allow'
  const without = (tool: string) => value.filter((each) => each.tool !== tool)
  const choose = (tool: string, mode: Mode) =>
    onChange(mode === (tool === OTHERS ? 'allow' : others) ? without(tool) : [...without(tool), { tool, mode }])
  const known = [...(entryOf(OTHERS) ? [OTHERS] : []), ...BUILT_IN_TOOLS]
  const unknown = value.filter(isUnknown)
  return (
    <fieldset className="mb-4 min-w-0">
      <legend className="mb-1 font-medium">{t.title}</legend>
      <p className="mb-1 text-soft text-xs">{help}</p>
      <div className="divide-y divide-line rounded-md border border-line">
        {unknown.map(({ tool }) => (
          <div key={tool} className="flex items-center justify-between gap-3 px-3 py-1.5">
            <p className="min-w-0">
              <bdi className="break-all font-mono text-xs">{tool}</bdi>
              <span className="block text-danger text-xs">{t.noSuchTool}</span>
            </p>
            <IconButton label={texts.chat.remove(tool)} icon={X} onClick={() => onChange(without(tool))} />
          </div>
        ))}
        {known.map((tool) => (
          <label key={tool} className="flex items-center justify-between gap-3 px-3 py-1.5">
            {tool === OTHERS ? (
              <span className="min-w-0">{t.others}</span>
            ) : (
              <span className="min-w-0 break-all font-mono text-xs">{tool}</span>
            )}
            <select
              className="field w-auto py-1"
              value={entryOf(tool) ?? others}
              onChange={({ target }) => choose(tool, target.value as Mode)}
            >
              {Object.entries(t.modes).map(([mode, label]) => (
                <option key={mode} value={mode}>
                  {label}
                </option>
              ))}
            </select>
          </label>
        ))}
      </div>
    </fieldset>
  )
}

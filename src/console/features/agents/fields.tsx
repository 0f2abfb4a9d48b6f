import { useQuery } from '@tanstack/react-query'
import { useId, useState } from 'react'
import { callMutation } from '../../api.ts'
import { Check, Select, TextArea, TextField } from '../../components/field.tsx'
import { isUnknown, ToolModes } from '../../components/tool-modes.tsx'
import { query } from '../../queries.ts'
import { agents as t } from '../../texts/agents.ts'
import { texts } from '../../texts.ts'
import { SkillUpdates } from '../skills/skill-updates.tsx'
import { AgentTicks } from './agent-picker.tsx'
import { McpTicks, SkillTicks } from './attached-ticks.tsx'
import type { Draft } from './form.ts'
import { OutputFields } from './output.tsx'

type Props = {
  draft: Draft
  onChange: (draft: Draft) => void
  agentId: string | null
  disabled: boolean
}

const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high'] as const

/** All fields of an agent, in collapsible sections. */
export function Fields({ draft, onChange, agentId, disabled }: Props) {
  const set = (changes: Partial<Draft>) => onChange({ ...draft, ...changes })
  const text = (name: { [Key in keyof Draft]: Draft[Key] extends string ? Key : never }[keyof Draft]) => ({
    field: name as string,
    value: draft[name],
    onChange: ({ target }: { target: { value: string } }) => set({ [name]: target.value }),
  })
  return (
    <fieldset disabled={disabled} className="min-w-0">
      <legend className="sr-only">{t.tabs.edit}</legend>
      <Part title={t.sections.about} open>
        <div className="grid gap-x-4 sm:grid-cols-2">
          <TextField label={t.name} required maxLength={200} {...text('name')} />
          <TextField label={t.role} maxLength={200} {...text('role')} />
        </div>
        <TextField label={texts.description} help={t.descriptionHelp} maxLength={2000} {...text('description')} />
        <TextArea
          label={t.prompt}
          help={t.promptHelp}
          required
          maxLength={100_000}
          className="min-h-48 text-base"
          {...text('systemPrompt')}
        />
        <div className="grid gap-x-4 sm:grid-cols-2">
          <Select
            label={texts.visibility}
            field="visibility"
            options={Object.entries(texts.visibilities).map(([value, label]) => ({ value, label }))}
            value={draft.visibility}
            onChange={({ target }) => set({ visibility: target.value as Draft['visibility'] })}
          />
          <TextField label={t.tags} isCode help={t.tagsHelp} {...text('tags')} />
        </div>
        <TextArea label={t.greeting} help={t.greetingHelp} maxLength={10_000} {...text('initialGreeting')} />
      </Part>
      <Part title={t.sections.model} open>
        <ModelFields draft={draft} set={set} text={text} />
      </Part>
      <Part title={t.sections.output} open={draft.outputSchema !== ''}>
        <OutputFields help={t.outputHelp} draft={draft} onChange={set} />
      </Part>
      <Part title={t.sections.tools} open={draft.permissions.some(isUnknown)}>
        <ToolModes
          help={t.permissionsHelp}
          value={draft.permissions}
          onChange={(permissions) => set({ permissions })}
        />
        <div className="grid gap-x-4 sm:grid-cols-2">
          <TextArea
            label={t.allowedTools}
            isCode
            help={t.allowedHelp}
            className="font-mono text-xs"
            {...text('allowedTools')}
          />
          <TextArea
            label={t.disallowedTools}
            isCode
            help={t.disallowedHelp}
            className="font-mono text-xs"
            {...text('disallowedTools')}
          />
        </div>
        <Check
          label={t.requireTools}
          checked={draft.requireTools}
          onChange={(requireTools) => set({ requireTools })}
          className="mb-3"
        />
        <Attached draft={draft} set={set} agentId={agentId} />
      </Part>
    </fieldset>
  )
}

/** A section that is open at first if `open` says so. Later changes of `open` do not close it under the person. */
function Part({ title, open, children }: { title: string; open?: boolean; children: React.ReactNode }) {
  const [isOpen] = useState(open)
  return (
    <details open={isOpen} className="mb-4 rounded-xl border border-line">
      <summary className="px-4 py-2.5 font-semibold">{title}</summary>
      <div className="border-line border-t px-4 pt-4 pb-1">{children}</div>
    </details>
  )
}

type PartProps = { draft: Draft; set: (changes: Partial<Draft>) => void }

function ModelFields({
  draft,
  set,
  text,
}: PartProps & {
  text: (
    name: 'model' | 'fallbackModels' | 'temperature' | 'topP' | 'maxOutputTokens' | 'maxTurns' | 'contextWindow',
  ) => {
    field: string
    value: string
    onChange: (event: { target: { value: string } }) => void
  }
}) {
  const models = useQuery(query('models.list', undefined))
  const id = useId()
  return (
    <>
      <div className="grid gap-x-4 sm:grid-cols-2">
        <TextField
          label={t.model}
          isCode
          help={t.modelHelp}
          list={`${id}-models`}
          placeholder={t.defaultModel(models.data?.defaultModel ?? null)}
          {...text('model')}
        />
        <datalist id={`${id}-models`}>
          {models.data?.models.map(({ id: model, available }) => (
            <option key={model} value={model}>
              {available ? '' : t.notAvailable}
            </option>
          ))}
        </datalist>
        <TextField label={t.fallbackModels} isCode help={t.fallbackHelp} {...text('fallbackModels')} />
      </div>
      <div className="grid grid-cols-2 items-end gap-x-4 lg:grid-cols-3">
        <TextField
          label={t.temperature}
          inputMode="decimal"
          placeholder={t.ownDefault}
          {...text('temperature')}
          field="modelSettings.temperature"
        />
        <TextField
          label={t.topP}
          inputMode="decimal"
          placeholder={t.ownDefault}
          {...text('topP')}
          field="modelSettings.topP"
        />
        <Select
          label={t.reasoningEffort}
          field="modelSettings.reasoningEffort"
          options={[{ value: '', label: t.ownDefault }, ...EFFORTS.map((value) => ({ value, label: value }))]}
          value={draft.reasoningEffort}
          onChange={({ target }) => set({ reasoningEffort: target.value })}
        />
        <TextField
          label={t.maxOutputTokens}
          inputMode="numeric"
          placeholder={t.ownDefault}
          {...text('maxOutputTokens')}
          field="modelSettings.maxOutputTokens"
        />
        <TextField label={t.maxTurns} inputMode="numeric" placeholder={t.defaultTurns} {...text('maxTurns')} />
        <TextField label={t.contextWindow} inputMode="numeric" placeholder={t.learned} {...text('contextWindow')} />
      </div>
      <Select
        label={t.history}
        help={t.historyHelp}
        options={Object.entries(t.histories).map(([value, label]) => ({ value, label }))}
        value={draft.history}
        onChange={({ target }) => set({ history: target.value as Draft['history'] })}
      />
    </>
  )
}

function Attached({ draft, set, agentId }: PartProps & { agentId: string | null }) {
  const saved = useQuery({ ...query('agents.get', { id: agentId ?? '' }), enabled: agentId !== null }).data?.agent
  return (
    <>
      <SkillTicks help={t.skillsHelp} value={draft.skillIds} onChange={(skillIds) => set({ skillIds })} />
      {saved && (
        <SkillUpdates
          refs={saved.skillRefs}
          adopt={(skillId) => callMutation('agents.updateSkill', { id: saved.id, skillId })}
        />
      )}
      <McpTicks help={t.mcpsHelp} value={draft.mcpInstanceIds} onChange={(mcpInstanceIds) => set({ mcpInstanceIds })} />
      <AgentTicks
        label={t.sections.subagents}
        help={t.subagentsHelp}
        empty={t.noSubagents}
        except={agentId}
        value={draft.subagentIds}
        onChange={(subagentIds) => set({ subagentIds })}
      />
    </>
  )
}

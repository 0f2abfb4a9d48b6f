import { callMutation } from '../../api.ts'
import { Dialog } from '../../components/dialog.tsx'
import { useEdits } from '../../components/edits.ts'
import { Field, TextArea, TextField, VisibilitySelect } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { changedFields } from '../../lib/changes.ts'
import { toNumber } from '../../lib/number.ts'
import { useOnce } from '../../once.ts'
import { readNow, useAction } from '../../queries.ts'
import { agents as agentTexts } from '../../texts/agents.ts'
import { missions as t } from '../../texts/missions.ts'
import { texts } from '../../texts.ts'
import { AgentPicker } from '../agents/agent-picker.tsx'
import { useFoundAgents } from '../agents/names.ts'
import { OutputFields, problemOfSchema, toOutput, toOutputDraft } from '../agents/output.tsx'
import { SpacePicker } from '../spaces/space-picker.tsx'
import { type Mission, newSchedule, ScheduleFields, toSchedule, toScheduleDraft } from './schedule.tsx'

const LABELS = {
  title: t.name,
  goal: t.goal,
  agentId: t.agent,
  spaceId: t.space,
  visibility: texts.visibility,
  schedule: t.schedule,
  maxTurns: agentTexts.maxTurns,
  outputSchema: agentTexts.outputSchema,
  outputName: agentTexts.outputName,
}

const toFields = (mission: Mission | null) => ({
  title: mission?.title ?? '',
  goal: mission?.goal ?? '',
  agentId: mission?.agentId ?? '',
  spaceId: mission?.spaceId ?? '',
  visibility: mission?.visibility ?? ('organization' as Mission['visibility']),
  schedule: mission ? toScheduleDraft(mission.schedule) : newSchedule(),
  maxTurns: mission?.maxTurns ? String(mission.maxTurns) : '',
  ...toOutputDraft(mission?.output ?? null),
})

/** Converts a draft to a request. The service validates it. */
const toInput = ({ outputSchema, outputName, ...draft }: ReturnType<typeof toFields>) => ({
  ...draft,
  spaceId: draft.spaceId || null,
  schedule: toSchedule(draft.schedule),
  maxTurns: toNumber(draft.maxTurns) ?? null,
  output: toOutput({ outputSchema, outputName }),
})

/** Creates or changes a mission. */
export function MissionForm({ mission, onClose }: { mission: Mission | null; onClose: (id: string | null) => void }) {
  const { agents, isPending } = useFoundAgents()
  const saved = toFields(mission)
  const read = mission && (async () => toFields((await readNow('missions.get', { id: mission.id })).mission))
  const { draft, set, check } = useEdits(saved, LABELS, read)
  const once = useOnce()
  const save = useAction(
    async () => {
      if (!mission) return (await once('missions.create', toInput(draft))).id
      const changes = changedFields(toInput(saved), toInput(draft))
      await check(() => callMutation('missions.update', { id: mission.id, ...changes }))
      return null
    },
    { changes: ['missions.'], done: texts.saved, onDone: onClose, quiet: true },
  )
  const isReady =
    draft.title.trim() !== '' && draft.goal.trim() !== '' && draft.agentId !== '' && !problemOfSchema(draft)
  return (
    <Dialog open onClose={() => onClose(null)} title={mission ? t.edit : t.new} as="wide">
      <Form save={save} isReady={isReady} label={mission ? texts.save : texts.create} onCancel={() => onClose(null)}>
        <TextField
          label={t.name}
          field="title"
          required
          maxLength={200}
          value={draft.title}
          onChange={({ target }) => set({ title: target.value })}
        />
        <TextArea
          label={t.goal}
          field="goal"
          help={t.goalHelp}
          required
          maxLength={100_000}
          value={draft.goal}
          onChange={({ target }) => set({ goal: target.value })}
        />
        <div className="grid gap-x-4 sm:grid-cols-2">
          <Field label={t.agent} field="agentId" help={!isPending && !agents.length && t.noAgents}>
            {(given) => (
              <AgentPicker
                label={t.agent}
                required
                value={draft.agentId}
                onChange={(agentId) => set({ agentId })}
                {...given}
              />
            )}
          </Field>
          <Field label={t.space} field="spaceId" help={t.spaceHelp}>
            {(given) => (
              <SpacePicker
                label={t.space}
                none={t.defaultSpace}
                value={draft.spaceId}
                onChange={(spaceId) => set({ spaceId })}
                {...given}
              />
            )}
          </Field>
          <VisibilitySelect value={draft.visibility} onChange={(visibility) => set({ visibility })} />
        </div>
        <ScheduleFields draft={draft.schedule} onChange={(schedule) => set({ schedule })} />
        <details className="rounded-lg border border-line">
          <summary className="px-3 py-2 font-medium">{t.limits}</summary>
          <div className="px-3">
            <TextField
              label={agentTexts.maxTurns}
              field="maxTurns"
              help={t.maxTurnsHelp}
              inputMode="numeric"
              placeholder={agentTexts.defaultTurns}
              value={draft.maxTurns}
              onChange={({ target }) => set({ maxTurns: target.value })}
            />
            <OutputFields help={t.outputHelp} draft={draft} onChange={set} />
          </div>
        </details>
      </Form>
    </Dialog>
  )
}

import { callMutation } from '../../api.ts'
import { Dialog } from '../../components/dialog.tsx'
import { useEdits } from '../../components/edits.ts'
import { Field, TextArea, TextField, VisibilitySelect } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { readNow, useAction } from '../../queries.ts'
import { missions as t } from '../../texts/missions.ts'
import { texts } from '../../texts.ts'
import { AgentPicker } from '../agents/agent-picker.tsx'
import { useFoundAgents } from '../agents/names.ts'
import { SpacePicker } from '../spaces/space-picker.tsx'
import { type Mission, newSchedule, ScheduleFields, toSchedule, toScheduleDraft } from './schedule.tsx'

const LABELS = {
  title: t.name,
  goal: t.goal,
  agentId: t.agent,
  spaceId: t.space,
  visibility: texts.visibility,
  schedule: t.schedule,
}

const toFields = (mission: Mission | null) => ({
  title: mission?.title ?? '',
  goal: mission?.goal ?? '',
  agentId: mission?.agentId ?? '',
  spaceId: mission?.spaceId ?? '',
  visibility: mission?.visibility ?? ('organization' as Mission['visibility']),
  schedule: mission ? toScheduleDraft(mission.schedule) : newSchedule(),
})

/** Creates or changes a mission. */
export function MissionForm({ mission, onClose }: { mission: Mission | null; onClose: (id: string | null) => void }) {
  const { agents, isPending } = useFoundAgents()
  const read = mission && (async () => toFields((await readNow('missions.get', { id: mission.id })).mission))
  const { draft, edits, set, check } = useEdits(toFields(mission), LABELS, read)
  const save = useAction(
    async () => {
      const schedule = toSchedule(draft.schedule)
      const spaceId = draft.spaceId || null
      if (!mission) return (await callMutation('missions.create', { ...draft, spaceId, schedule })).id
      await check()
      const { schedule: edited, ...rest } = edits
      await callMutation('missions.update', {
        id: mission.id,
        ...rest,
        ...(rest.spaceId !== undefined && { spaceId }),
        ...(edited && { schedule }),
      })
      return null
    },
    { changes: ['missions.'], done: texts.saved, onDone: onClose, quiet: true },
  )
  const isReady = draft.title.trim() !== '' && draft.goal.trim() !== '' && draft.agentId !== ''
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
      </Form>
    </Dialog>
  )
}

import { useState } from 'react'
import { callMutation } from '../../api.ts'
import { Dialog } from '../../components/dialog.tsx'
import { Field, TextArea, TextField, VisibilitySelect } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { changedFields } from '../../lib/changes.ts'
import { useAction } from '../../queries.ts'
import { texts } from '../../texts.ts'
import { AgentPicker } from '../agents/agent-picker.tsx'
import { useFoundAgents } from '../agents/names.ts'
import {
  type Mission,
  newSchedule,
  type ScheduleDraft,
  ScheduleFields,
  toSchedule,
  toScheduleDraft,
} from './schedule.tsx'
import { missions as t } from './texts.ts'

const toInput = <Draft extends { schedule: ScheduleDraft }>({ schedule, ...rest }: Draft) => ({
  ...rest,
  schedule: toSchedule(schedule),
})

/** Creates or changes a mission. */
export function MissionForm({ mission, onClose }: { mission: Mission | null; onClose: (id: string | null) => void }) {
  const { agents, isPending } = useFoundAgents()
  const [first] = useState(() => ({
    title: mission?.title ?? '',
    goal: mission?.goal ?? '',
    agentId: mission?.agentId ?? '',
    visibility: mission?.visibility ?? 'organization',
    schedule: mission ? toScheduleDraft(mission.schedule) : newSchedule(),
  }))
  const [draft, setDraft] = useState(first)
  const set = (changes: Partial<typeof draft>) => setDraft({ ...draft, ...changes })
  const save = useAction(
    async () => {
      if (!mission) return (await callMutation('missions.create', toInput(draft))).id
      await callMutation('missions.update', { id: mission.id, ...changedFields(toInput(first), toInput(draft)) })
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
          <VisibilitySelect value={draft.visibility} onChange={(visibility) => set({ visibility })} />
        </div>
        <ScheduleFields draft={draft.schedule} onChange={(schedule) => set({ schedule })} />
      </Form>
    </Dialog>
  )
}

import { useQuery } from '@tanstack/react-query'
import { useDeferredValue } from 'react'
import { callQuery, describeFailure, type Output, refusalOf } from '../../api.ts'
import { Select, TextField } from '../../components/field.tsx'
import { moment, ownTimeZone } from '../../lib/format.ts'
import { toNumber } from '../../lib/number.ts'
import { missions as t } from '../../texts/missions.ts'
import { cronInWords } from './cron.ts'

export type Mission = Output<'missions.get'>['mission']
export type Schedule = Mission['schedule']

/** The state of the schedule editor. */
export type ScheduleDraft = {
  type: Schedule['type']
  value: string
  timezone: string
  overlap: Schedule['overlap']
  catchUp: Schedule['catchUp']
  maxRuns: string
}

const PRESETS = ['0 * * * *', '0 8 * * *', '0 8 * * 1-5', '0 8 * * 1', '0 8 1 * *']

export const newSchedule = (): ScheduleDraft => ({
  type: 'none',
  value: '',
  overlap: 'skip',
  catchUp: 'last',
  maxRuns: '',
  timezone: ownTimeZone(),
})

export const toScheduleDraft = ({ type, value, timezone, overlap, catchUp, maxRuns }: Schedule): ScheduleDraft => ({
  type,
  value: value ?? '',
  timezone,
  overlap,
  catchUp,
  maxRuns: maxRuns === null ? '' : String(maxRuns),
})

/** Converts it to a request. */
export const toSchedule = ({ type, value, timezone, overlap, catchUp, maxRuns }: ScheduleDraft) => ({
  type,
  timezone,
  overlap,
  catchUp,
  value: type === 'none' ? null : value,
  maxRuns: toNumber(maxRuns) ?? null,
})

/** Describes a schedule in words. */
export function describeSchedule({ type, value, timezone }: Schedule): string {
  if (type === 'none') return t.types.none
  if (type === 'once') return value ? `${t.types.once} · ${moment(value)}` : t.types.once
  if (type === 'continuous') return `${t.types.continuous} · ${value ?? 0} s`
  return `${cronInWords(value ?? '') ?? value} (${timezone})`
}

/** The fields of a schedule, with its next fire times. */
export function ScheduleFields({
  draft,
  onChange,
}: {
  draft: ScheduleDraft
  onChange: (draft: ScheduleDraft) => void
}) {
  const set = (changes: Partial<ScheduleDraft>) => onChange({ ...draft, ...changes })
  const zones = Intl.supportedValuesOf('timeZone')
  const preset = PRESETS.includes(draft.value) ? draft.value : 'custom'
  return (
    <fieldset className="mb-3 rounded-lg border border-line p-3">
      <legend className="px-1 font-medium">{t.schedule}</legend>
      <div className="grid gap-x-4 sm:grid-cols-2">
        <Select
          label={t.type}
          options={Object.entries(t.types).map(([value, label]) => ({ value, label }))}
          value={draft.type}
          onChange={({ target }) => {
            const type = target.value as ScheduleDraft['type']
            set({ type, value: { cron: '0 8 * * *', continuous: '60', once: '', none: '' }[type] })
          }}
        />
        {draft.type === 'cron' && (
          <Select
            label={t.cron}
            options={[
              ...PRESETS.map((value) => ({ value, label: cronInWords(value) ?? value })),
              { value: 'custom', label: t.custom },
            ]}
            value={preset}
            onChange={({ target }) => set({ value: target.value === 'custom' ? `${draft.value} ` : target.value })}
          />
        )}
        {draft.type === 'once' && (
          <TextField
            label={t.at}
            field="schedule.value"
            type="datetime-local"
            required
            value={toLocal(draft.value)}
            onChange={({ target }) => set({ value: target.value && new Date(target.value).toISOString() })}
          />
        )}
        {draft.type === 'continuous' && (
          <TextField
            label={t.pause}
            field="schedule.value"
            inputMode="numeric"
            value={draft.value}
            onChange={({ target }) => set({ value: target.value })}
          />
        )}
      </div>
      {draft.type === 'cron' && (
        <div className="grid gap-x-4 sm:grid-cols-2">
          <TextField
            label={t.expression}
            isCode
            field="schedule.value"
            help={cronInWords(draft.value) ?? t.expressionHelp}
            className="font-mono"
            value={draft.value}
            onChange={({ target }) => set({ value: target.value })}
          />
          <TextField
            label={t.timezone}
            isCode
            field="schedule.timezone"
            list="zones"
            value={draft.timezone}
            onChange={({ target }) => set({ timezone: target.value })}
          />
          <datalist id="zones">
            {zones.map((zone) => (
              <option key={zone} value={zone} />
            ))}
          </datalist>
        </div>
      )}
      {draft.type !== 'none' && draft.type !== 'once' && (
        <div className="grid gap-x-4 sm:grid-cols-2">
          <Select
            label={t.overlap}
            options={Object.entries(t.overlaps).map(([value, label]) => ({ value, label }))}
            value={draft.overlap}
            onChange={({ target }) => set({ overlap: target.value as ScheduleDraft['overlap'] })}
          />
          {draft.type === 'cron' && (
            <Select
              label={t.catchUp}
              options={Object.entries(t.catchUps).map(([value, label]) => ({ value, label }))}
              value={draft.catchUp}
              onChange={({ target }) => set({ catchUp: target.value as ScheduleDraft['catchUp'] })}
            />
          )}
          <TextField
            label={t.maxRuns}
            field="schedule.maxRuns"
            inputMode="numeric"
            value={draft.maxRuns}
            onChange={({ target }) => set({ maxRuns: target.value })}
          />
        </div>
      )}
      {draft.type === 'cron' && <Preview draft={draft} />}
    </fieldset>
  )
}

function Preview({ draft }: { draft: ScheduleDraft }) {
  const schedule = useDeferredValue(draft)
  const { data, error } = useQuery({
    queryKey: ['missions.preview', schedule.value, schedule.timezone],
    queryFn: () => callQuery('missions.preview', { schedule: toSchedule(schedule) }),
    retry: false,
  })
  if (error) return <p className="text-danger">{refusalOf(error)?.reason ?? describeFailure(error)}</p>
  const times = data?.next.slice(0, 3).map((time) => moment(time, schedule.timezone)) ?? []
  // One text: a browser that translates the page takes the place of each text, and leaves out changes of one among many.
  return (
    <p className="text-soft" aria-live="polite">
      {`${t.next}: ${times.join(' · ')}`}
    </p>
  )
}

/** Formats a moment for inputs of the type datetime-local. */
function toLocal(iso: string): string {
  if (!iso) return ''
  const date = new Date(iso)
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16)
}

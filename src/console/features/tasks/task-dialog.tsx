import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { Play } from 'lucide-react'
import { useState } from 'react'
import { callMutation } from '../../api.ts'
import { Badge, kindOf } from '../../components/badge.tsx'
import { Button, buttonClass } from '../../components/button.tsx'
import { Dialog } from '../../components/dialog.tsx'
import { useEdits } from '../../components/edits.ts'
import { Field, Select, TextArea, TextField } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { Markdown } from '../../components/markdown.tsx'
import { Loaded } from '../../components/page.tsx'
import { moment } from '../../lib/format.ts'
import { useOnce } from '../../once.ts'
import { query, readNow, useAction } from '../../queries.ts'
import { tasks as t } from '../../texts/tasks.ts'
import { texts } from '../../texts.ts'
import { LastFailure } from '../runs/failure.tsx'
import { SpacePicker } from '../spaces/space-picker.tsx'
import { AssigneePicker, useAssignee } from './assignees.tsx'
import { movesOf, type Status, type Task } from './moves.ts'

type Draft = Pick<Task, 'title' | 'description' | 'priority'> & { assignedTo: string; spaceId: string }

const LABELS = {
  title: t.name,
  description: texts.description,
  priority: t.priority,
  assignedTo: t.assignee,
  spaceId: t.space,
}

const toDraft = ({ title, description, priority, assignedTo, spaceId }: Task): Draft => ({
  title,
  description,
  priority,
  assignedTo: assignedTo ?? '',
  spaceId: spaceId ?? '',
})

const PRIORITIES = Object.entries(t.priorities).map(([value, label]) => ({ value, label }))

/** The fields of a task. */
function Fields({ draft, onChange }: { draft: Draft; onChange: (draft: Draft) => void }) {
  const set = (changes: Partial<Draft>) => onChange({ ...draft, ...changes })
  return (
    <>
      <TextField
        label={t.name}
        field="title"
        required
        maxLength={500}
        value={draft.title}
        onChange={({ target }) => set({ title: target.value })}
      />
      <TextArea
        label={texts.description}
        field="description"
        maxLength={100_000}
        value={draft.description}
        onChange={({ target }) => set({ description: target.value })}
      />
      <div className="grid gap-x-4 sm:grid-cols-2">
        <Field label={t.assignee} field="assignTo">
          {(given) => (
            <AssigneePicker
              label={t.assignee}
              fixed={[{ key: '', label: t.nobody }]}
              value={draft.assignedTo}
              onChange={(assignedTo) => set({ assignedTo })}
              {...given}
            />
          )}
        </Field>
        <Select
          label={t.priority}
          field="priority"
          options={PRIORITIES}
          value={draft.priority}
          onChange={({ target }) => set({ priority: target.value as Task['priority'] })}
        />
        <Field label={t.space} field="spaceId">
          {(given) => (
            <SpacePicker
              label={t.space}
              none={texts.none}
              value={draft.spaceId}
              onChange={(spaceId) => set({ spaceId })}
              {...given}
            />
          )}
        </Field>
      </div>
    </>
  )
}

export function NewTask({ spaceId, onClose }: { spaceId: string; onClose: () => void }) {
  const [draft, setDraft] = useState<Draft>({
    title: '',
    description: '',
    priority: 'medium',
    assignedTo: '',
    spaceId,
  })
  const once = useOnce()
  const create = useAction(
    () =>
      once('tasks.create', {
        ...draft,
        spaceId: draft.spaceId || null,
        assignedTo: null,
        assignTo: draft.assignedTo || null,
      }),
    { changes: ['tasks.'], done: t.created, onDone: onClose, quiet: true },
  )
  return (
    <Dialog open onClose={onClose} title={t.new}>
      <Form save={create} isReady={draft.title.trim() !== ''} label={texts.create} onCancel={onClose}>
        <Fields draft={draft} onChange={setDraft} />
      </Form>
    </Dialog>
  )
}

/** One task to read, change and run, with its result. */
export function TaskDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const task = useQuery(query('tasks.get', { id }))
  return (
    <Dialog open onClose={onClose} title={task.data?.task.title ?? t.title} as="wide">
      <Loaded query={task}>{({ task: found }) => <Opened key={found.id} task={found} onClose={onClose} />}</Loaded>
    </Dialog>
  )
}

function Opened({ task, onClose }: { task: Task; onClose: () => void }) {
  const { isAgent } = useAssignee(task.assignedTo)
  const read = async () => toDraft((await readNow('tasks.get', { id: task.id })).task)
  const { draft, edits, isChanged, set, check } = useEdits(toDraft(task), LABELS, read)
  const save = useAction(
    () => {
      const { assignedTo, spaceId, ...rest } = edits
      const place = spaceId === undefined ? {} : { spaceId: spaceId || null }
      const assignTo = assignedTo === undefined ? {} : { assignTo: assignedTo || null }
      return check(() => callMutation('tasks.update', { id: task.id, ...rest, ...place, ...assignTo }))
    },
    { changes: ['tasks.'], done: texts.saved, quiet: true, onDone: onClose },
  )
  const move = useAction((status: Status) => callMutation('tasks.update', { id: task.id, status }), {
    changes: ['tasks.'],
    untilRead: true,
  })
  const run = useAction(() => callMutation('tasks.execute', { id: task.id, background: true }), {
    changes: ['tasks.', 'executions.'],
    done: t.runs,
    untilRead: true,
  })
  const runId = task.executionId ?? task.lastExecutionId
  const creator = useAssignee(task.createdBy).name
  const canRun = task.status === 'pending' && isAgent
  return (
    <>
      <div className="mb-4 flex flex-wrap items-center gap-2">
        <Badge kind={kindOf(task.status)}>{t.states[task.status]}</Badge>
        {movesOf(task.status).map((status) => (
          <Button key={status} small disabled={move.isPending} onClick={() => move.mutate(status)}>
            {t.moveTo}: {t.states[status]}
          </Button>
        ))}
        {canRun && (
          <Button small kind="primary" icon={Play} busy={run.isPending} onClick={() => run.mutate(undefined)}>
            {t.run}
          </Button>
        )}
        {runId && (
          <Link to="/runs/$runId" params={{ runId }} className={buttonClass()}>
            {t.lookAtRun}
          </Link>
        )}
      </div>
      {task.lastError && <LastFailure reason={task.lastError} runId={task.lastExecutionId} />}
      {task.result && (
        <section aria-label={t.result} className="mb-4 rounded-lg border border-line bg-panel px-4 py-3">
          <h3 className="mb-1 text-soft text-xs">{t.result}</h3>
          <Markdown text={task.result} />
        </section>
      )}
      <Form save={save} isReady={isChanged && draft.title.trim() !== ''} onCancel={onClose}>
        <Fields draft={draft} onChange={set} />
        <p className="text-soft text-xs" dir="auto">
          {t.createdBy(creator, moment(task.createdAt))}
        </p>
      </Form>
    </>
  )
}

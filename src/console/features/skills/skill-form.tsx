import { useState } from 'react'
import { BUILT_IN_TOOLS } from '../../../lib/built-in-tools.ts'
import { callMutation, type Output } from '../../api.ts'
import { Button } from '../../components/button.tsx'
import { ConfirmDelete } from '../../components/dialog.tsx'
import { useEdits } from '../../components/edits.ts'
import { Select, TextArea, TextField, Ticks, VisibilitySelect } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { useOnce } from '../../once.ts'
import { readNow, useAction } from '../../queries.ts'
import { skills as t } from '../../texts/skills.ts'
import { texts } from '../../texts.ts'
import type { SkillFile } from './skill-file.ts'

type Skill = Output<'skills.get'>['skill']

const CATEGORIES = ['research', 'writing', 'data', 'code', 'marketing', 'productivity', 'file-handling', 'other']

/** All built-in tools, and the names of a skill that belong to none. */
const toolOptions = (named: readonly string[]) => [
  ...BUILT_IN_TOOLS.map((value) => ({ value, label: value })),
  ...named
    .filter((name) => !(BUILT_IN_TOOLS as readonly string[]).includes(name))
    .map((value) => ({ value, label: value, detail: texts.toolModes.noSuchTool })),
]

const LABELS = {
  name: t.name,
  displayName: t.displayName,
  description: t.description,
  prompt: t.prompt,
  category: t.category,
  builtInTools: t.tools,
  visibility: texts.visibility,
}

const toFields = (skill: Skill | null, file: SkillFile | null = null) => ({
  name: (skill ?? file)?.name ?? '',
  displayName: (skill ?? file)?.displayName ?? '',
  description: (skill ?? file)?.description ?? '',
  prompt: (skill ?? file)?.prompt ?? '',
  category: skill?.category ?? ('other' as Skill['category']),
  builtInTools: (skill ?? file)?.builtInTools ?? [],
  visibility: skill?.visibility ?? ('organization' as Skill['visibility']),
})

type FormProps = {
  skill: Skill | null
  /** The fields of a new skill, from a file. */
  file?: SkillFile | null
  onClose: () => void
}

/** Creates a skill, of a file if there is one, or changes one. */
export function SkillForm({ skill, file = null, onClose }: FormProps) {
  const read = skill && (async () => toFields((await readNow('skills.get', { id: skill.id })).skill))
  const { draft, edits, set, check } = useEdits(toFields(skill, file), LABELS, read)
  const [isDeleting, setIsDeleting] = useState(false)
  const once = useOnce()
  const save = useAction(
    async () => {
      const displayName = draft.displayName.trim() || null
      if (!skill) return once('skills.create', { ...draft, displayName })
      const changes = { ...edits, ...('displayName' in edits && { displayName }) }
      return check(() => callMutation('skills.update', { id: skill.id, ...changes }))
    },
    { changes: ['skills.'], done: skill ? texts.saved : t.created, onDone: onClose, quiet: true },
  )
  const remove = useAction(() => callMutation('skills.delete', { id: skill?.id ?? '' }), {
    changes: ['skills.'],
    done: texts.deleted,
    onDone: onClose,
  })
  const isReady = draft.name.trim() !== '' && draft.description.trim() !== '' && draft.prompt.trim() !== ''
  const text = (name: 'name' | 'displayName' | 'description' | 'prompt') => ({
    value: draft[name],
    onChange: ({ target }: { target: { value: string } }) => set({ [name]: target.value }),
  })
  return (
    <Form
      save={save}
      isReady={isReady}
      label={skill ? texts.save : texts.create}
      onCancel={onClose}
      more={
        skill && (
          <Button kind="danger" className="mr-auto" onClick={() => setIsDeleting(true)}>
            {t.delete}
          </Button>
        )
      }
    >
      {file && <Left file={file} />}
      <div className="grid gap-x-4 sm:grid-cols-2">
        <TextField label={t.name} isCode field="name" help={t.nameHelp} required maxLength={64} {...text('name')} />
        <TextField
          label={t.displayName}
          field="displayName"
          help={texts.optional}
          maxLength={200}
          {...text('displayName')}
        />
      </div>
      <TextArea
        label={t.description}
        field="description"
        help={t.descriptionHelp}
        required
        maxLength={1024}
        {...text('description')}
      />
      <TextArea
        label={t.prompt}
        field="prompt"
        required
        maxLength={100_000}
        className="min-h-48 font-mono text-xs"
        {...text('prompt')}
      />
      <div className="grid gap-x-4 sm:grid-cols-2">
        <Select
          label={t.category}
          field="category"
          options={CATEGORIES.map((value) => ({ value, label: value }))}
          value={draft.category}
          onChange={({ target }) => set({ category: target.value as Skill['category'] })}
        />
        <VisibilitySelect value={draft.visibility} onChange={(visibility) => set({ visibility })} />
      </div>
      <Ticks
        label={t.tools}
        empty={null}
        options={toolOptions((skill ?? file)?.builtInTools ?? [])}
        value={draft.builtInTools}
        onChange={(builtInTools) => set({ builtInTools })}
      />
      {isDeleting && <ConfirmDelete t={t} remove={remove} onClose={() => setIsDeleting(false)} />}
    </Form>
  )
}

/** The parts of a file that a skill does not have. */
const Left = ({ file: { leftOut, files } }: { file: SkillFile }) => (
  <div className="mb-3 text-soft" dir="auto">
    {leftOut.length > 0 && <p>{t.leftOut(leftOut.join(', '))}</p>}
    {files.length > 0 && <p>{t.otherFiles(files.join(', '))}</p>}
  </div>
)

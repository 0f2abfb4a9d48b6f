import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { Boxes, Plus } from 'lucide-react'
import { useState } from 'react'
import { BUILT_IN_TOOLS } from '../../../lib/built-in-tools.ts'
import { callMutation, type Output } from '../../api.ts'
import { Badge } from '../../components/badge.tsx'
import { Button } from '../../components/button.tsx'
import { ConfirmDelete, Dialog } from '../../components/dialog.tsx'
import { useEdits } from '../../components/edits.ts'
import { Select, TextArea, TextField, Ticks, VisibilitySelect } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { Markdown } from '../../components/markdown.tsx'
import { Empty, Loaded, Page, Rows, Section } from '../../components/page.tsx'
import { NoMatch, SearchField, useSearching } from '../../components/search.tsx'
import { allPages, query, readNow, useAction, WATCHED } from '../../queries.ts'
import { useMayChange } from '../../session.ts'
import { skills as t } from '../../texts/skills.ts'
import { texts } from '../../texts.ts'

type Summary = Output<'skills.list'>['skills']['core'][number]
type Skill = Output<'skills.get'>['skill']

/** The sources of skills, in the order of the page. */
const SOURCES = ['organization', 'core', 'marketplace'] as const

const CATEGORIES = ['research', 'writing', 'data', 'code', 'marketing', 'productivity', 'file-handling', 'other']
/** The skills for agents, grouped by source. */
export function Skills() {
  const navigate = useNavigate({ from: '/skills' })
  const { skill: opened } = useSearch({ from: '/skills' })
  const [isNew, setIsNew] = useState(false)
  const { filter, field } = useSearching()
  const list = useQuery({ ...allPages('skills.list', filter), ...WATCHED })
  const open = (skill: string | undefined) =>
    void navigate({ search: ({ search }) => ({ search, skill }), replace: skill === undefined })
  const add = (
    <Button kind="primary" icon={Plus} onClick={() => setIsNew(true)}>
      {t.new}
    </Button>
  )
  return (
    <Page title={t.title} actions={add}>
      <SearchField list={t.title} className="mb-4 max-w-72" {...field} />
      <Loaded query={list}>
        {(pages) => {
          if (filter.search && !pages[0]?.total) return <NoMatch icon={Boxes} />
          return SOURCES.map((source) => {
            const skills = pages.flatMap((page) => page.skills[source])
            if (!skills.length && (filter.search || source !== 'organization')) return null
            return (
              <Section key={source} title={t[source]}>
                {skills.length ? (
                  <Table skills={skills} onOpen={open} />
                ) : (
                  <Empty icon={Boxes} title={t.emptyTitle} text={t.emptyText}>
                    {add}
                  </Empty>
                )}
              </Section>
            )
          })
        }}
      </Loaded>
      {isNew && (
        <Dialog open onClose={() => setIsNew(false)} title={t.new} as="wide">
          <SkillForm skill={null} onClose={() => setIsNew(false)} />
        </Dialog>
      )}
      {opened && <Opened id={opened} onClose={() => open(undefined)} />}
    </Page>
  )
}

const Table = ({ skills, onOpen }: { skills: readonly Summary[]; onOpen: (id: string) => void }) => (
  <Rows>
    {skills.map((skill) => (
      <li key={skill.id} className="relative flex items-center gap-4 px-4 py-3 hover:bg-panel">
        <div className="min-w-0 flex-1">
          <button
            type="button"
            dir="auto"
            className="block max-w-full truncate font-medium after:absolute after:inset-0"
            onClick={() => onOpen(skill.id)}
          >
            {skill.displayName}
          </button>
          <p className="line-clamp-2 text-soft" dir="auto">
            {skill.description}
          </p>
        </div>
        <Badge>{skill.category}</Badge>
        <span className="text-soft text-xs">{t.version(skill.version)}</span>
      </li>
    ))}
  </Rows>
)

function Opened({ id, onClose }: { id: string; onClose: () => void }) {
  const skill = useQuery(query('skills.get', { id }))
  const mayChange = useMayChange(skill.data?.skill.ownerId)
  return (
    <Dialog open onClose={onClose} title={skill.data?.skill.displayName ?? t.title} as="wide">
      <Loaded query={skill}>
        {({ skill: found }) => {
          if (found.source === 'organization' && mayChange) return <SkillForm skill={found} onClose={onClose} />
          return (
            <>
              <p className="mb-4 text-soft" dir="auto">
                {found.description}
              </p>
              <div className="rounded-xl border border-line px-4 py-3">
                <Markdown text={found.prompt} />
              </div>
            </>
          )
        }}
      </Loaded>
    </Dialog>
  )
}

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

const toFields = (skill: Skill | null) => ({
  name: skill?.name ?? '',
  displayName: skill?.displayName ?? '',
  description: skill?.description ?? '',
  prompt: skill?.prompt ?? '',
  category: skill?.category ?? ('other' as Skill['category']),
  builtInTools: skill?.builtInTools ?? [],
  visibility: skill?.visibility ?? ('organization' as Skill['visibility']),
})

function SkillForm({ skill, onClose }: { skill: Skill | null; onClose: () => void }) {
  const read = skill && (async () => toFields((await readNow('skills.get', { id: skill.id })).skill))
  const { draft, edits, set, check } = useEdits(toFields(skill), LABELS, read)
  const [isDeleting, setIsDeleting] = useState(false)
  const save = useAction(
    async () => {
      await check()
      const displayName = draft.displayName.trim() || null
      return skill
        ? callMutation('skills.update', { id: skill.id, ...edits, ...('displayName' in edits && { displayName }) })
        : callMutation('skills.create', { ...draft, displayName })
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
      <TextField
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
        options={toolOptions(skill?.builtInTools ?? [])}
        value={draft.builtInTools}
        onChange={(builtInTools) => set({ builtInTools })}
      />
      {isDeleting && <ConfirmDelete t={t} remove={remove} onClose={() => setIsDeleting(false)} />}
    </Form>
  )
}

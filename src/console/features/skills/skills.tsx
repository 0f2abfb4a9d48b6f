import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { Boxes, FileUp, Plus } from 'lucide-react'
import { type DragEvent, useRef, useState } from 'react'
import { describeFailure, type Output } from '../../api.ts'
import { Badge } from '../../components/badge.tsx'
import { Button } from '../../components/button.tsx'
import { Dialog } from '../../components/dialog.tsx'
import { Markdown } from '../../components/markdown.tsx'
import { useParts } from '../../components/more.tsx'
import { Empty, Loaded, Page, Rows, Section } from '../../components/page.tsx'
import { NoMatch, SearchField, useSearching } from '../../components/search.tsx'
import { toast } from '../../components/toast.tsx'
import { cn } from '../../lib/class-names.ts'
import { allPages, query, WATCHED } from '../../queries.ts'
import { useMayChange } from '../../session.ts'
import { skills as t } from '../../texts/skills.ts'
import { openSkillFile, type SkillFile } from './skill-file.ts'
import { SkillForm } from './skill-form.tsx'

type Summary = Output<'skills.list'>['skills']['core'][number]

/** The sources of skills, in the order of the page. */
const SOURCES = ['organization', 'core', 'marketplace'] as const

/** The skills for agents, grouped by source. */
export function Skills() {
  const navigate = useNavigate({ from: '/skills' })
  const { skill: opened } = useSearch({ from: '/skills' })
  /** The file of a new skill, or that there is none. */
  const [fresh, setFresh] = useState<SkillFile | 'empty' | null>(null)
  const [isOver, setIsOver] = useState(false)
  const picker = useRef<HTMLInputElement>(null)
  const { filter, field } = useSearching()
  const list = useQuery({ ...allPages('skills.list', filter), ...WATCHED })
  const open = (skill: string | undefined) =>
    void navigate({ search: ({ search }) => ({ search, skill }), replace: skill === undefined })
  const take = ([file]: Iterable<File>) =>
    void (
      file &&
      openSkillFile(file).then(setFresh, (error) => toast(t.notImported(file.name, describeFailure(error)), 'bad'))
    )
  const hasFiles = (event: DragEvent) => event.dataTransfer.types.includes('Files')
  const add = (
    <>
      <Button icon={FileUp} onClick={() => picker.current?.click()}>
        {t.import}
      </Button>
      <Button kind="primary" icon={Plus} onClick={() => setFresh('empty')}>
        {t.new}
      </Button>
    </>
  )
  return (
    <Page title={t.title} actions={add}>
      <input
        ref={picker}
        type="file"
        accept=".md,.markdown,.txt"
        hidden
        onChange={({ target }) => {
          take(target.files ?? [])
          target.value = ''
        }}
      />
      {/* biome-ignore lint/a11y/noStaticElementInteractions: a button imports files, too */}
      <div
        className={cn('rounded-xl', isOver && 'bg-tint outline outline-accent')}
        onDragOver={(event) => {
          if (!hasFiles(event)) return
          event.preventDefault()
          setIsOver(true)
        }}
        onDragLeave={() => setIsOver(false)}
        onDrop={(event) => {
          if (!hasFiles(event)) return
          event.preventDefault()
          setIsOver(false)
          take(event.dataTransfer.files)
        }}
      >
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
      </div>
      {fresh && (
        <Dialog
          open
          onClose={() => setFresh(null)}
          title={t.new}
          as="wide"
          {...(fresh !== 'empty' && { description: t.importHelp, isFirm: true })}
        >
          <SkillForm skill={null} file={fresh === 'empty' ? null : fresh} onClose={() => setFresh(null)} />
        </Dialog>
      )}
      {opened && <Opened id={opened} onClose={() => open(undefined)} />}
    </Page>
  )
}

function Table({ skills, onOpen }: { skills: readonly Summary[]; onOpen: (id: string) => void }) {
  const [shown, more] = useParts(skills)
  return (
    <>
      <Rows>
        {shown.map((skill) => (
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
      {more}
    </>
  )
}

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

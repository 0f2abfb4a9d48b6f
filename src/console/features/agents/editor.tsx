import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { Archive, Ellipsis, MessageSquare } from 'lucide-react'
import { useState } from 'react'
import { callMutation, toFailure } from '../../api.ts'
import { Badge } from '../../components/badge.tsx'
import { Button, buttonClass, IconButton } from '../../components/button.tsx'
import { Clashing } from '../../components/clashing.tsx'
import { Confirm } from '../../components/dialog.tsx'
import { Clash } from '../../components/edits.ts'
import { useGuard, usePageGuard } from '../../components/guard.ts'
import { Menu, MenuItem } from '../../components/menu.tsx'
import { Loaded, Page } from '../../components/page.tsx'
import { Fallible } from '../../components/refused.tsx'
import { Tabs } from '../../components/tabs.tsx'
import { changedFields } from '../../lib/changes.ts'
import { query, useAction } from '../../queries.ts'
import { useIsAdmin, useSession } from '../../session.ts'
import { texts } from '../../texts.ts'
import { AsCode } from './as-code.tsx'
import { Fields } from './fields.tsx'
import { type Agent, type Draft, emptyDraft, problemOfSchema, toDraft, toInput } from './form.ts'
import { agents as t } from './texts.ts'
import { TryIt } from './try-it.tsx'
import { Versions } from './versions.tsx'

export function NewAgent() {
  const navigate = useNavigate()
  const [draft, setDraft] = useState(emptyDraft)
  const [isDone, setIsDone] = useState(false)
  useGuard(!isDone && draft !== emptyDraft)
  const create = useAction((given: Draft) => callMutation('agents.create', toInput(given)), {
    changes: ['agents.', 'chats.list'],
    done: t.created,
    quiet: true,
    onDone: ({ id }) => {
      setIsDone(true)
      // The guard must run first.
      setTimeout(() => void navigate({ to: '/agents/$agentId', params: { agentId: id } }))
    },
  })
  const isReady = draft.name.trim() !== '' && draft.systemPrompt.trim() !== '' && !problemOfSchema(draft)
  return (
    <Page
      title={texts.newAgent}
      actions={
        <Button kind="primary" disabled={!isReady} busy={create.isPending} onClick={() => create.mutate(draft)}>
          {texts.create}
        </Button>
      }
    >
      <div className="max-w-3xl">
        <Fallible error={create.error}>
          <Fields draft={draft} onChange={setDraft} agentId={null} disabled={false} />
        </Fallible>
      </div>
    </Page>
  )
}

export function EditAgent() {
  const { agentId } = useParams({ from: '/agents/$agentId' })
  const agent = useQuery(query('agents.get', { id: agentId }))
  if (!agent.data) {
    return (
      <Page title={t.title}>
        <Loaded query={agent}>{() => null}</Loaded>
      </Page>
    )
  }
  return <Editor key={agentId} agent={agent.data.agent} reload={async () => (await agent.refetch()).data?.agent} />
}

function Editor({ agent, reload }: { agent: Agent; reload: () => Promise<Agent | undefined> }) {
  const navigate = useNavigate()
  const { user } = useSession()
  const isAdmin = useIsAdmin()
  // The version that was opened. A newer version appears on request, or after saving.
  const [base, setBase] = useState(agent)
  const [draft, setDraft] = useState(() => toDraft(agent))
  const { tab: wanted } = useSearch({ from: '/agents/$agentId' })
  const tab = wanted && Object.hasOwn(t.tabs, wanted) ? (wanted as keyof typeof t.tabs) : 'edit'
  const [isArchiving, setIsArchiving] = useState(false)
  const [clash, setClash] = useState<Clash | null>(null)
  const isChanged = JSON.stringify(toInput(draft)) !== JSON.stringify(toInput(toDraft(base)))
  usePageGuard(isChanged)

  if (!isChanged && agent.version !== base.version) {
    setBase(agent)
    setDraft(toDraft(agent))
  }

  const save = useAction(
    (given: Draft) => callMutation('agents.update', { id: agent.id, version: base.version, ...toInput(given) }),
    {
      changes: ['agents.'],
      done: texts.saved,
      quiet: true,
      onDone: (_, given) => {
        setBase({ ...base, ...fromDraft(given), version: base.version + 1 })
        setClash(null)
      },
    },
  )
  const archive = useAction(() => callMutation('agents.delete', { id: agent.id }), {
    changes: ['agents.', 'chats.list'],
    done: t.archived,
    onDone: () => void navigate({ to: '/agents' }),
  })
  /** Describes the fields that the person and others have changed to different values. */
  const clashOf = (theirs: Partial<Draft>, mine: Partial<Draft>): Clash | null => {
    const both = Object.entries(changedFields(mine, theirs)).filter(([name]) => name in mine)
    const fields = both.map(([label, value]) => ({ label, theirs: value, mine: mine[label as keyof Draft] }))
    const giveUp = () => setDraft((now) => ({ ...now, ...Object.fromEntries(both) }))
    return fields.length ? new Clash(fields, giveUp) : null
  }
  const setTab = (name: typeof tab) =>
    void navigate({ to: '/agents/$agentId', params: { agentId: agent.id }, search: { tab: name }, replace: true })
  const mayWrite = agent.userId === user.id || (isAdmin && agent.visibility !== 'private')
  const isStale = save.error !== null && toFailure(save.error).status === 412

  return (
    <Page
      wide
      title={agent.name}
      lead={agent.role}
      actions={
        <>
          {isChanged && <Badge kind="warn">{texts.unsaved}</Badge>}
          <Link to="/" search={{ agent: agent.id }} className={buttonClass()}>
            <MessageSquare size={15} aria-hidden />
            {t.talk}
          </Link>
          {mayWrite && (
            <>
              <Button
                kind="primary"
                disabled={!isChanged || problemOfSchema(draft) !== null}
                busy={save.isPending}
                onClick={() => save.mutate(draft)}
              >
                {texts.save}
              </Button>
              <Menu trigger={<IconButton label={texts.actions} icon={Ellipsis} />}>
                <MenuItem icon={Archive} danger onSelect={() => setIsArchiving(true)}>
                  {t.archive}
                </MenuItem>
              </Menu>
            </>
          )}
        </>
      }
    >
      {!mayWrite && <p className="mb-4 text-soft">{t.readOnly}</p>}
      {isStale && (
        <div role="alert" className="mb-4 flex flex-wrap items-center gap-3 rounded-xl bg-warn-tint px-4 py-3">
          <p className="flex-1">{t.conflict}</p>
          <Button
            onClick={async () => {
              const theirs = await reload()
              if (!theirs) return
              save.reset()
              setBase(theirs)
              const [before, now] = [toDraft(base), toDraft(theirs)]
              const mine = changedFields(before, draft)
              setDraft({ ...now, ...mine })
              setClash(clashOf(changedFields(before, now), mine))
            }}
          >
            {t.reload}
          </Button>
        </div>
      )}
      {clash && (
        <Clashing
          clash={clash}
          giveUp={() => {
            clash.giveUp()
            setClash(null)
          }}
        />
      )}
      <div className="grid grid-cols-1 gap-6 xl:grid-cols-[minmax(0,3fr)_minmax(0,2fr)]">
        <div className="min-w-0">
          <Fallible error={isStale ? null : save.error}>
            <Tabs label={t.title} tabs={t.tabs} value={tab} onChange={setTab}>
              {tab === 'edit' && <Fields draft={draft} onChange={setDraft} agentId={agent.id} disabled={!mayWrite} />}
              {tab === 'versions' && (
                <Versions agent={agent} onRestore={mayWrite ? (old) => save.mutate(toDraft(old)) : null} />
              )}
              {tab === 'code' && <AsCode agent={agent} />}
            </Tabs>
          </Fallible>
        </div>
        <TryIt agentId={agent.id} isChanged={isChanged} />
      </div>
      {isArchiving && (
        <Confirm
          onClose={() => setIsArchiving(false)}
          title={t.archiveTitle}
          text={t.archiveText}
          action={t.archive}
          onConfirm={() => archive.mutateAsync(undefined)}
        />
      )}
    </Page>
  )
}

/** The fields of an agent as a draft. */
function fromDraft(draft: Draft): Partial<Agent> {
  const input = toInput(draft)
  return {
    ...(input as Partial<Agent>),
    role: input.role ?? 'Assistant',
    modelSettings: (input.modelSettings ?? {}) as Agent['modelSettings'],
  }
}

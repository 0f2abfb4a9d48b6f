import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { Activity, Archive, Ellipsis, MessageSquare } from 'lucide-react'
import { useRef, useState } from 'react'
import { callMutation } from '../../api.ts'
import { Badge } from '../../components/badge.tsx'
import { Button, buttonClass, IconButton } from '../../components/button.tsx'
import { Clashing } from '../../components/clashing.tsx'
import { Confirm } from '../../components/dialog.tsx'
import { Clash, useEdits } from '../../components/edits.ts'
import { useGuard, usePageGuard } from '../../components/guard.ts'
import { Menu, MenuItem } from '../../components/menu.tsx'
import { Loaded, Page } from '../../components/page.tsx'
import { Fallible } from '../../components/refused.tsx'
import { Tabs } from '../../components/tabs.tsx'
import { changedFields } from '../../lib/changes.ts'
import { useOnce } from '../../once.ts'
import { query, readNow, useAction } from '../../queries.ts'
import { useIsAdmin, useSession } from '../../session.ts'
import { agents as t } from '../../texts/agents.ts'
import { texts } from '../../texts.ts'
import { AsCode } from './as-code.tsx'
import { Fields } from './fields.tsx'
import { type Agent, type Draft, emptyDraft, LABELS, toDraft, toInput, uneditedOf } from './form.ts'
import { problemOfSchema } from './output.tsx'
import { TryIt } from './try-it.tsx'
import { Versions } from './versions.tsx'

export function NewAgent() {
  const navigate = useNavigate()
  const [draft, setDraft] = useState(emptyDraft)
  const [isDone, setIsDone] = useState(false)
  useGuard(!isDone && draft !== emptyDraft)
  const once = useOnce()
  const create = useAction((given: Draft) => once('agents.create', toInput(given)), {
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
          {/* The page of the agent, which follows, would lose later letters. */}
          <Fields draft={draft} onChange={setDraft} agentId={null} disabled={create.isPending} />
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
  return <Editor key={agentId} agent={agent.data.agent} />
}

function Editor({ agent }: { agent: Agent }) {
  const navigate = useNavigate()
  const { user } = useSession()
  const isAdmin = useIsAdmin()
  const { id } = agent
  const { tab: wanted } = useSearch({ from: '/agents/$agentId' })
  const tab = wanted && Object.hasOwn(t.tabs, wanted) ? (wanted as keyof typeof t.tabs) : 'edit'
  const [isArchiving, setIsArchiving] = useState(false)
  const version = useRef(agent.version)
  const read = async () => {
    const { agent: now } = await readNow('agents.get', { id })
    version.current = now.version
    return toDraft(now)
  }
  const { draft, edits, set, check } = useEdits(toDraft(agent), LABELS, read)
  // Spaces around a value, for example, are no change.
  const isChanged = Object.keys(changedFields(toInput(toDraft(agent)), toInput(draft))).length > 0
  usePageGuard(isChanged)

  // Saves the edits, or an older version, beside which the edits stay.
  const save = useAction(
    async (older: Agent | null) => {
      const fields = older ? toDraft(older) : edits
      const send = (now: Draft) => {
        const changes = {
          ...changedFields(toInput(now), toInput({ ...now, ...fields })),
          ...(older && changedFields(uneditedOf(agent), uneditedOf(older))),
        }
        return callMutation('agents.update', { id, version: version.current, ...changes })
      }
      await (older ? read().then(send) : check(send))
      return fields
    },
    {
      changes: ['agents.'],
      done: texts.saved,
      quiet: true,
      untilRead: true,
      onDone: (fields) => set(asStored(agent, draft, fields)),
    },
  )
  const archive = useAction(() => callMutation('agents.delete', { id }), {
    changes: ['agents.', 'chats.list'],
    done: t.archived,
    onDone: () => void navigate({ to: '/agents' }),
  })
  const setTab = (name: typeof tab) =>
    void navigate({ to: '/agents/$agentId', params: { agentId: id }, search: { tab: name }, replace: true })
  const mayWrite = agent.userId === user.id || (isAdmin && agent.visibility !== 'private')
  const clash = save.error instanceof Clash ? save.error : null

  return (
    <Page
      wide
      title={agent.name}
      lead={agent.role}
      actions={
        <>
          {isChanged && <Badge kind="warn">{texts.unsaved}</Badge>}
          <Link to="/runs" search={{ agentId: id }} className={buttonClass()}>
            <Activity size={15} aria-hidden />
            {texts.nav.runs}
          </Link>
          <Link to="/" search={{ agent: id }} className={buttonClass()}>
            <MessageSquare size={15} aria-hidden />
            {t.talk}
          </Link>
          {mayWrite && (
            <>
              <Button
                kind="primary"
                disabled={!isChanged || problemOfSchema(draft) !== null}
                busy={save.isPending}
                onClick={() => save.mutate(null)}
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
      {clash && (
        <Clashing
          clash={clash}
          giveUp={() => {
            clash.giveUp()
            save.reset()
          }}
        />
      )}
      <div className="grid grid-cols-1 gap-6 xl:grid-cols-[minmax(0,3fr)_minmax(0,2fr)]">
        <div className="min-w-0">
          <Fallible error={clash ? null : save.error}>
            <Tabs label={t.title} tabs={t.tabs} value={tab} onChange={setTab}>
              {tab === 'edit' && <Fields draft={draft} onChange={set} agentId={id} disabled={!mayWrite} />}
              {tab === 'versions' && <Versions agent={agent} onRestore={mayWrite ? save.mutate : null} />}
              {tab === 'code' && <AsCode agent={agent} />}
            </Tabs>
          </Fallible>
        </div>
        <TryIt agentId={id} isChanged={isChanged} />
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

/**
 * Returns the values of saved fields as the service has stored them, without those that the person has changed again
 * meanwhile.
 */
function asStored(agent: Agent, draft: Draft, fields: Partial<Draft>): Partial<Draft> {
  const sent = { ...draft, ...fields }
  const input = toInput(sent)
  const stored = toDraft({
    ...agent,
    ...(input as Partial<Agent>),
    role: input.role ?? 'Assistant',
    modelSettings: (input.modelSettings ?? {}) as Agent['modelSettings'],
  })
  const changedAgain = changedFields(sent, draft)
  return Object.fromEntries(Object.entries(stored).filter(([name]) => name in fields && !(name in changedAgain)))
}

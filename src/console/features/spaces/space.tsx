import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { Activity, Ellipsis, Pencil, SquarePen, Trash2 } from 'lucide-react'
import { useState } from 'react'
import { callMutation } from '../../api.ts'
import { buttonClass, IconButton } from '../../components/button.tsx'
import { ConfirmDelete } from '../../components/dialog.tsx'
import { useEdits } from '../../components/edits.ts'
import { TextArea } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { useGuard } from '../../components/guard.ts'
import { Menu, MenuItem } from '../../components/menu.tsx'
import { More } from '../../components/more.tsx'
import { Loaded, Page, Rows } from '../../components/page.tsx'
import { Tabs } from '../../components/tabs.tsx'
import { Ago } from '../../components/time.tsx'
import { pages, query, readNow, useAction, WATCHED } from '../../queries.ts'
import { useMayChange } from '../../session.ts'
import { spaces as t } from '../../texts/spaces.ts'
import { texts } from '../../texts.ts'
import { isUntouched } from '../chat/chat-list.tsx'
import { Attached } from './attached.tsx'
import { Files } from './files.tsx'
import { Secrets } from './secrets.tsx'
import { SpaceForm, type SpaceShape } from './spaces.tsx'

const TABS = t.tabs
type Tab = keyof typeof TABS

/** One space: files, instructions, chats, attachments, and secrets. */
export function Space() {
  const { spaceId } = useParams({ from: '/spaces/$spaceId' })
  const space = useQuery({ ...query('spaces.get', { id: spaceId }), ...WATCHED })
  if (!space.data) {
    return (
      <Page title={t.title}>
        <Loaded query={space}>{() => null}</Loaded>
      </Page>
    )
  }
  return <Shown key={spaceId} space={space.data.space} />
}

function Shown({ space }: { space: SpaceShape }) {
  const navigate = useNavigate()
  const { tab, file, search } = useSearch({ from: '/spaces/$spaceId' })
  const [open, setOpen] = useState<'edit' | 'delete' | null>(null)
  const go = (to: { tab?: string; file?: string; search?: string | undefined }) =>
    void navigate({ to: '/spaces/$spaceId', params: { spaceId: space.id }, search: to, replace: true })
  const mayChange = useMayChange(space.ownerId)
  const remove = useAction(() => callMutation('spaces.delete', { id: space.id }), {
    changes: ['spaces.', 'chats.'],
    done: t.deleted,
    onDone: () => void navigate({ to: '/spaces' }),
  })
  // Only those who may change a space can list its secrets.
  const { secrets: _, ...readable } = TABS
  const tabs: Partial<typeof TABS> = mayChange ? TABS : readable
  const current: Tab = tab && Object.hasOwn(tabs, tab) ? (tab as Tab) : 'files'
  return (
    <Page
      wide
      title={space.name}
      lead={space.description}
      actions={
        <>
          <Link to="/runs" search={{ spaceId: space.id }} className={buttonClass()}>
            <Activity size={15} aria-hidden />
            {texts.nav.runs}
          </Link>
          <Link to="/" search={{ space: space.id }} className={buttonClass('primary')}>
            <SquarePen size={15} aria-hidden />
            {texts.chat.newChat}
          </Link>
          {mayChange && (
            <Menu trigger={<IconButton label={texts.actions} icon={Ellipsis} />}>
              <MenuItem icon={Pencil} onSelect={() => setOpen('edit')}>
                {t.settings}
              </MenuItem>
              <MenuItem icon={Trash2} danger onSelect={() => setOpen('delete')}>
                {t.delete}
              </MenuItem>
            </Menu>
          )}
        </>
      }
    >
      {!mayChange && <p className="mb-3 text-soft">{texts.readOnly}</p>}
      <Tabs label={t.title} tabs={tabs} value={current} onChange={(name) => go({ tab: name })}>
        {current === 'files' && (
          <Files
            spaceId={space.id}
            mayChange={mayChange}
            path={file ?? null}
            onOpen={(path) => go({ tab: 'files', file: path ?? '', search })}
          />
        )}
        {current === 'instructions' && <Instructions space={space} isReadOnly={!mayChange} />}
        {current === 'chats' && <Chats spaceId={space.id} />}
        {current === 'attached' && <Attached space={space} isReadOnly={!mayChange} />}
        {current === 'secrets' && <Secrets place={{ spaceId: space.id }} />}
      </Tabs>
      {open === 'edit' && <SpaceForm space={space} onClose={() => setOpen(null)} />}
      {open === 'delete' && <ConfirmDelete t={t} remove={remove} onClose={() => setOpen(null)} />}
    </Page>
  )
}

const instructionsOf = ({ instructions }: SpaceShape) => ({ instructions: instructions ?? '' })

function Instructions({ space, isReadOnly }: { space: SpaceShape; isReadOnly: boolean }) {
  const { id } = space
  const read = async () => instructionsOf((await readNow('spaces.get', { id })).space)
  const { draft, edits, isChanged, set, check } = useEdits(
    instructionsOf(space),
    { instructions: t.instructions },
    read,
  )
  useGuard(isChanged)
  const save = useAction(() => check(() => callMutation('spaces.update', { id, ...edits })), {
    changes: ['spaces.'],
    done: texts.saved,
    quiet: true,
  })
  return (
    <Form save={save} isReady={isChanged} isReadOnly={isReadOnly} className="max-w-3xl">
      <TextArea
        label={t.instructions}
        field="instructions"
        help={t.instructionsHelp}
        maxLength={100_000}
        className="min-h-48 text-base"
        value={draft.instructions}
        onChange={({ target }) => set({ instructions: target.value })}
      />
    </Form>
  )
}

function Chats({ spaceId }: { spaceId: string }) {
  const list = useInfiniteQuery({ ...pages('chats.list', { spaceId }), ...WATCHED })
  return (
    <>
      <Loaded query={list}>
        {({ pages: read }) => {
          const chats = read.flatMap((page) => page.chats).filter((chat) => !isUntouched(chat))
          if (!chats.length) return <p className="text-soft">{t.noChats}</p>
          return (
            <Rows>
              {chats.map((chat) => (
                <li key={chat.id} className="relative flex flex-wrap items-center gap-x-4 px-4 py-2.5 hover:bg-panel">
                  <Link
                    to="/chats/$chatId"
                    params={{ chatId: chat.id }}
                    className="min-w-0 flex-1 basis-60 truncate after:absolute after:inset-0"
                    dir="auto"
                  >
                    {chat.title}
                  </Link>
                  <bdi className="min-w-0 truncate text-soft">{chat.agentName}</bdi>
                  <span className="text-soft">
                    <Ago at={chat.updatedAt} />
                  </span>
                </li>
              ))}
            </Rows>
          )
        }}
      </Loaded>
      <More query={list} />
    </>
  )
}

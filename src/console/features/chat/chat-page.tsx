import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams } from '@tanstack/react-router'
import { Ellipsis, MessagesSquare, Pencil, Trash2 } from 'lucide-react'
import { useState } from 'react'
import { callMutation } from '../../api.ts'
import { Badge, kindOf } from '../../components/badge.tsx'
import { IconButton } from '../../components/button.tsx'
import { ConfirmDelete, Dialog } from '../../components/dialog.tsx'
import { TextField } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { Menu, MenuItem } from '../../components/menu.tsx'
import { useTitle } from '../../components/page.tsx'
import { query, useAction } from '../../queries.ts'
import { useMayChange } from '../../session.ts'
import { texts } from '../../texts.ts'
import { ChatList } from './chat-list.tsx'
import { type About, Thread } from './thread.tsx'

const t = texts.chat

/** One chat, with the list of chats beside it. */
export function ChatPage() {
  const { chatId } = useParams({ from: '/chats/$chatId' })
  return (
    <div className="flex h-full">
      <ChatList current={chatId} />
      <Thread key={chatId} chatId={chatId} header={(about) => <ChatHeader chatId={chatId} {...about} />} />
    </div>
  )
}

function ChatHeader({ chatId, title, ownerId, spaceId, agentId, agentName, status }: About & { chatId: string }) {
  useTitle(title)
  const navigate = useNavigate()
  const mayChange = useMayChange(ownerId)
  const found = useQuery({ ...query('spaces.get', { id: spaceId ?? '' }), enabled: spaceId !== undefined })
  const space = found.data?.space
  const [open, setOpen] = useState<'rename' | 'delete' | null>(null)
  const remove = useAction(() => callMutation('chats.delete', { id: chatId }), {
    changes: ['chats.list'],
    done: t.deleted,
    onDone: () => void navigate({ to: '/' }),
  })
  return (
    <header className="flex flex-wrap items-center gap-3 border-line border-b px-4 py-2.5">
      <Link
        to="/chats"
        aria-label={t.chats}
        title={t.chats}
        className="-ml-1 inline-flex size-8 shrink-0 items-center justify-center rounded-md text-soft hover:bg-hover lg:hidden"
      >
        <MessagesSquare size={16} aria-hidden />
      </Link>
      <div className="min-w-0 flex-1 basis-20">
        <h1 className="truncate font-semibold text-base" dir="auto">
          {title}
        </h1>
        <p className="truncate text-soft text-xs">
          {agentId ? (
            <Link to="/agents/$agentId" params={{ agentId }} className="hover:underline">
              <bdi>{agentName}</bdi>
            </Link>
          ) : (
            <bdi>{agentName}</bdi>
          )}
          {space && !space.isDefault && (
            <>
              {' · '}
              <Link to="/spaces/$spaceId" params={{ spaceId: space.id }} className="hover:underline">
                <bdi>{space.name}</bdi>
              </Link>
            </>
          )}
        </p>
      </div>
      {(status === 'needs_attention' || status === 'error') && <Badge kind={kindOf(status)}>{t.states[status]}</Badge>}
      {mayChange && (
        <Menu trigger={<IconButton label={t.menu} icon={Ellipsis} />}>
          <MenuItem icon={Pencil} onSelect={() => setOpen('rename')}>
            {t.rename}
          </MenuItem>
          <MenuItem icon={Trash2} danger onSelect={() => setOpen('delete')}>
            {t.delete}
          </MenuItem>
        </Menu>
      )}
      {open === 'rename' && <Rename chatId={chatId} title={title} onClose={() => setOpen(null)} />}
      {open === 'delete' && <ConfirmDelete t={t} remove={remove} onClose={() => setOpen(null)} />}
    </header>
  )
}

function Rename({ chatId, title, onClose }: { chatId: string; title: string; onClose: () => void }) {
  const [name, setName] = useState(title)
  const rename = useAction(() => callMutation('chats.update', { id: chatId, title: name }), {
    changes: ['chats.'],
    onDone: onClose,
    quiet: true,
  })
  return (
    <Dialog open onClose={onClose} title={t.rename}>
      <Form save={rename} isReady={name.trim() !== ''} onCancel={onClose}>
        <TextField
          label={t.name}
          field="title"
          required
          value={name}
          maxLength={200}
          onChange={({ target }) => setName(target.value)}
        />
      </Form>
    </Dialog>
  )
}

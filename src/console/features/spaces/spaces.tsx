import { useInfiniteQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { FolderOpen } from 'lucide-react'
import { callMutation, type Output } from '../../api.ts'
import { Badge } from '../../components/badge.tsx'
import { Dialog } from '../../components/dialog.tsx'
import { useEdits } from '../../components/edits.ts'
import { NameField, TextField, VisibilitySelect } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { ListPage } from '../../components/list-page.tsx'
import { useSearching } from '../../components/search.tsx'
import { useOnce } from '../../once.ts'
import { pages, readNow, useAction, WATCHED } from '../../queries.ts'
import { spaces as t } from '../../texts/spaces.ts'
import { texts } from '../../texts.ts'

export type SpaceShape = Output<'spaces.get'>['space']

/** The spaces that the person can see. */
export function Spaces() {
  const navigate = useNavigate()
  const searching = useSearching()
  const list = useInfiniteQuery({ ...pages('spaces.list', searching.filter), ...WATCHED })
  return (
    <ListPage
      t={t}
      icon={FolderOpen}
      list={list}
      searching={searching}
      rowsOf={(page) =>
        page.spaces.map((space) => (
          <li key={space.id} className="relative flex flex-wrap items-center gap-x-4 gap-y-1 px-4 py-3 hover:bg-panel">
            <div className="min-w-0 flex-1 basis-60">
              <Link
                to="/spaces/$spaceId"
                params={{ spaceId: space.id }}
                className="block truncate font-medium after:absolute after:inset-0"
                dir="auto"
              >
                {space.name}
              </Link>
              <p className="truncate text-soft" dir="auto">
                {space.description}
              </p>
            </div>
            {space.visibility === 'private' && <Badge>{texts.visibilityNames.private}</Badge>}
            <span className="text-soft">
              {t.chatCount(space.chatCount)} · {t.fileCount(space.fileCount)}
            </span>
          </li>
        ))
      }
      form={(close) => (
        <SpaceForm
          space={null}
          onClose={(id) => {
            close()
            if (id) void navigate({ to: '/spaces/$spaceId', params: { spaceId: id } })
          }}
        />
      )}
    />
  )
}

const LABELS = { name: texts.name, description: texts.description, visibility: texts.visibility }

const toFields = (space: SpaceShape | null) => ({
  name: space?.name ?? '',
  description: space?.description ?? '',
  visibility: space?.visibility ?? ('organization' as SpaceShape['visibility']),
})

/** Creates a space, or changes its name and visibility. */
export function SpaceForm({ space, onClose }: { space: SpaceShape | null; onClose: (id: string | null) => void }) {
  const read = space && (async () => toFields((await readNow('spaces.get', { id: space.id })).space))
  const { draft, edits, set, check } = useEdits(toFields(space), LABELS, read)
  const once = useOnce()
  const save = useAction(
    async () => {
      if (!space) return (await once('spaces.create', draft)).id
      await check(() => callMutation('spaces.update', { id: space.id, ...edits }))
      return null
    },
    { changes: ['spaces.'], done: space ? texts.saved : t.created, onDone: onClose, quiet: true },
  )
  return (
    <Dialog open onClose={() => onClose(null)} title={space ? t.settings : t.new}>
      <Form
        save={save}
        isReady={draft.name.trim() !== ''}
        label={space ? texts.save : texts.create}
        onCancel={() => onClose(null)}
      >
        <NameField value={draft.name} onChange={(name) => set({ name })} />
        <TextField
          label={texts.description}
          field="description"
          maxLength={2000}
          value={draft.description}
          onChange={({ target }) => set({ description: target.value })}
        />
        <VisibilitySelect value={draft.visibility} onChange={(visibility) => set({ visibility })} />
      </Form>
    </Dialog>
  )
}

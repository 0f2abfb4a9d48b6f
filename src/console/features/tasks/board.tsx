import { draggable, dropTargetForElements } from '@atlaskit/pragmatic-drag-and-drop/element/adapter'
import { useInfiniteQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { Ellipsis, Play, Plus, Trash2, UserCheck } from 'lucide-react'
import { type RefObject, useEffect, useRef, useState } from 'react'
import { callMutation, type Input } from '../../api.ts'
import { Avatar, Badge, type BadgeKind } from '../../components/badge.tsx'
import { Button, IconButton } from '../../components/button.tsx'
import { ConfirmDelete } from '../../components/dialog.tsx'
import { Menu, MenuItem, MenuLabel, MenuLine } from '../../components/menu.tsx'
import { More } from '../../components/more.tsx'
import { Loading, Problem, useTitle } from '../../components/page.tsx'
import { SearchField, useSearching } from '../../components/search.tsx'
import { Ago } from '../../components/time.tsx'
import { toast } from '../../components/toast.tsx'
import { useChanges } from '../../follow.ts'
import { cn } from '../../lib/class-names.ts'
import { count } from '../../lib/format.ts'
import { pages, useAction } from '../../queries.ts'
import { tasks as t } from '../../texts/tasks.ts'
import { SpacePicker } from '../spaces/space-picker.tsx'
import { AssigneePicker, useAssignee } from './assignees.tsx'
import { movesOf, STATUSES, type Status, type Task } from './moves.ts'
import { NewTask, TaskDialog } from './task-dialog.tsx'

const PRIORITY_KINDS: Readonly<Record<Task['priority'], BadgeKind>> = {
  low: 'plain',
  medium: 'plain',
  high: 'warn',
  urgent: 'bad',
}

const ANY_ASSIGNEE = [
  { key: '', label: t.anybody },
  { key: 'me', label: t.me },
  { key: 'none', label: t.nobody },
]

/** The tasks of the organization in four columns. A card moves by the mouse, or by its menu. */
export function Board() {
  useTitle(t.title)
  useChanges('tasks.changes', 'tasks.')
  const navigate = useNavigate({ from: '/tasks' })
  const { task: opened, assignedTo, priority, spaceId } = useSearch({ from: '/tasks' })
  const [isNew, setIsNew] = useState(false)
  const searching = useSearching()
  const filter: Filter = {
    ...searching.filter,
    ...(assignedTo && { assignedTo }),
    ...(priority && { priority: priority as Task['priority'] }),
    ...(spaceId && { spaceId }),
  }
  const set = (changes: { task?: string | undefined; assignedTo?: string; priority?: string; spaceId?: string }) =>
    // The way back closes an opened task.
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: changes.task === undefined })

  const move = useAction(
    async ({ task, status }: { task: Task; status: Status }) => {
      await callMutation('tasks.update', { id: task.id, status })
      toast(t.moved(task.title, t.states[status]))
    },
    { changes: ['tasks.'], untilRead: true },
  )
  const moveTo = (task: Task, status: Status) => {
    if (task.status === status) return
    if (!movesOf(task.status).includes(status)) return toast(t.noMove(t.states[task.status], t.states[status]), 'bad')
    move.mutate({ task, status })
  }
  // A card that moves by its menu keeps the focus in its new column.
  const focused = useRef<string | null>(null)

  return (
    <div className="flex h-full flex-col overflow-y-auto">
      <header className="flex flex-wrap items-center gap-2 px-4 pt-5 pb-3 sm:px-6">
        <h1 className="mr-auto font-semibold text-xl">{t.title}</h1>
        <SearchField list={t.title} className="w-40 max-w-full" {...searching.field} />
        <AssigneePicker
          label={t.assignee}
          fixed={ANY_ASSIGNEE}
          value={assignedTo ?? ''}
          onChange={(value) => set({ assignedTo: value })}
          className="w-40 max-w-full [&>input]:py-1"
        />
        <select
          aria-label={t.priority}
          className="field w-auto"
          value={priority ?? ''}
          onChange={({ target }) => set({ priority: target.value })}
        >
          <option value="">{t.anyPriority}</option>
          {Object.entries(t.priorities).map(([value, label]) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </select>
        <SpacePicker
          label={t.space}
          none={t.anySpace}
          value={spaceId ?? ''}
          onChange={(value) => set({ spaceId: value })}
          className="w-40 max-w-full [&>input]:py-1"
        />
        <Button kind="primary" icon={Plus} onClick={() => setIsNew(true)}>
          {t.new}
        </Button>
      </header>
      <div className="flex min-h-48 flex-1 gap-3 overflow-x-auto px-4 pb-4 sm:px-6 print:grid print:grid-cols-2">
        {STATUSES.map((status) => (
          <Column
            key={status}
            status={status}
            filter={filter}
            moves={move.pending}
            onMove={moveTo}
            focused={focused}
            onOpen={(id) => set({ task: id })}
          />
        ))}
      </div>
      {isNew && <NewTask spaceId={spaceId ?? ''} onClose={() => setIsNew(false)} />}
      {opened && <TaskDialog id={opened} onClose={() => set({ task: undefined })} />}
    </div>
  )
}

type Filter = Exclude<Input<'tasks.list'>, void>

type ColumnProps = {
  status: Status
  filter: Filter
  /** The moves that are not saved yet. */
  moves: readonly { task: Task; status: Status }[]
  onMove: (task: Task, status: Status) => void
  /** The id of the card that takes the focus when it appears. */
  focused: RefObject<string | null>
  onOpen: (id: string) => void
}

function Column({ status, filter, moves, onMove, ...rest }: ColumnProps) {
  const box = useRef<HTMLElement>(null)
  const [isOver, setIsOver] = useState(false)
  const list = useInfiniteQuery(pages('tasks.list', { ...filter, status, count: true }, 50))
  const total = list.data?.pages[0]?.total
  const drop = useRef(onMove)
  drop.current = onMove

  useEffect(() => {
    const element = box.current
    if (!element) return
    return dropTargetForElements({
      element,
      onDragEnter: () => setIsOver(true),
      onDragLeave: () => setIsOver(false),
      onDrop: ({ source }) => {
        setIsOver(false)
        drop.current(source.data.task as Task, status)
      },
    })
  }, [status])

  const read = list.data?.pages.flatMap((page) => page.tasks) ?? []
  // A moved card stands in its new column at once.
  const moved = [...new Map(moves.map((move) => [move.task.id, move])).values()]
  const cards = [
    ...moved.flatMap((move) => (move.status === status ? { ...move.task, status } : [])).toReversed(),
    ...read.filter(({ id }) => !moved.some(({ task }) => task.id === id)),
  ]
  return (
    <section
      ref={box}
      aria-label={t.states[status]}
      data-status={status}
      className={cn(
        'flex w-72 min-w-60 flex-1 flex-col rounded-xl border bg-panel print:w-auto',
        isOver ? 'border-accent bg-tint' : 'border-line',
      )}
    >
      <h2 className="flex justify-between gap-2 px-3 pt-3 pb-2 font-semibold">
        {t.states[status]}
        {total ? <span className="font-normal text-soft tabular-nums">{count(total)}</span> : null}
      </h2>
      {/* The keyboard must reach scrolling regions. */}
      <div
        className="min-h-0 flex-1 space-y-2 overflow-y-auto px-2 pb-3"
        tabIndex={0}
        role="group"
        aria-label={t.states[status]}
      >
        {list.isPending && <Loading lines={3} />}
        {list.error && !list.data && <Problem error={list.error} retry={() => void list.refetch()} />}
        {list.data && !cards.length && <p className="px-1 py-2 text-soft">{t.emptyColumn}</p>}
        {cards.map((task) => (
          <Card key={task.id} task={task} onMove={onMove} {...rest} />
        ))}
        <More query={list} />
      </div>
    </section>
  )
}

type CardProps = Pick<ColumnProps, 'onMove' | 'focused' | 'onOpen'> & { task: Task }

function Card({ task, onMove, focused, onOpen }: CardProps) {
  const box = useRef<HTMLElement>(null)
  const [isDragged, setIsDragged] = useState(false)
  const [isDeleting, setIsDeleting] = useState(false)
  useEffect(() => {
    if (focused.current !== task.id) return
    focused.current = null
    box.current?.querySelector<HTMLElement>('[aria-haspopup]')?.focus()
  }, [focused, task.id])
  const moves = movesOf(task.status)
  useEffect(() => {
    const element = box.current
    if (!element) return
    return draggable({
      element,
      getInitialData: () => ({ task }),
      onDragStart: () => setIsDragged(true),
      onDrop: () => setIsDragged(false),
    })
  }, [task])
  const claim = useAction(() => callMutation('tasks.claim', { id: task.id }), { changes: ['tasks.'] })
  const run = useAction(() => callMutation('tasks.execute', { id: task.id, background: true }), {
    changes: ['tasks.', 'executions.'],
    done: t.runs,
  })
  const remove = useAction(() => callMutation('tasks.delete', { id: task.id }), {
    changes: ['tasks.'],
    done: t.deleted,
  })
  const { assignedTo } = task
  const assignee = useAssignee(assignedTo)
  const isPending = task.status === 'pending'
  return (
    <article
      ref={box}
      data-task={task.id}
      className={cn(
        'relative rounded-lg border border-line bg-raised p-3 hover:border-edge',
        isDragged && 'opacity-40',
      )}
    >
      <div className="flex items-start gap-1">
        <button
          type="button"
          dir="auto"
          className="line-clamp-3 min-w-0 flex-1 text-left font-medium after:absolute after:inset-0"
          onClick={() => onOpen(task.id)}
        >
          {task.title}
        </button>
        <Menu
          trigger={<IconButton label={t.menu(task.title)} icon={Ellipsis} className="relative -mt-1 -mr-1 size-7" />}
        >
          {moves.length > 0 && <MenuLabel>{t.moveTo}</MenuLabel>}
          {moves.map((status) => (
            <MenuItem
              key={status}
              onSelect={() => {
                focused.current = task.id
                onMove(task, status)
              }}
            >
              {t.states[status]}
            </MenuItem>
          ))}
          {moves.length > 0 && <MenuLine />}
          {isPending && assignedTo === null && (
            <MenuItem icon={UserCheck} onSelect={() => claim.mutate(undefined)}>
              {t.claim}
            </MenuItem>
          )}
          {isPending && assignee.isAgent && (
            <MenuItem icon={Play} onSelect={() => run.mutate(undefined)}>
              {t.run}
            </MenuItem>
          )}
          <MenuItem icon={Trash2} danger onSelect={() => setIsDeleting(true)}>
            {t.delete}
          </MenuItem>
        </Menu>
      </div>
      <div className="mt-2 flex items-center gap-2 text-soft text-xs">
        {task.priority !== 'medium' && (
          <Badge kind={PRIORITY_KINDS[task.priority]}>{t.priorities[task.priority]}</Badge>
        )}
        {task.lastError && <Badge kind="bad">{t.lastError}</Badge>}
        {assignedTo && (
          <span className="flex min-w-0 items-center gap-1.5">
            <Avatar name={assignee.name} size="small" />
            <bdi className="truncate">{assignee.name}</bdi>
          </span>
        )}
        <span className="ml-auto">
          <Ago at={task.updatedAt} />
        </span>
      </div>
      {isDeleting && <ConfirmDelete t={t} remove={remove} onClose={() => setIsDeleting(false)} />}
    </article>
  )
}

import type { ArgumentRef, InputRef, ObjectRef } from '@pothos/core'
import type { AnyProcedure } from '@trpc/server'
import type { GraphQLResolveInfo } from 'graphql'
import type { z } from 'zod'
import { builder, type GraphQLContext, type Types } from './builder.ts'
import { Deletion } from './deletion.ts'
import { argsFromZod } from './inputs.ts'
import { procedureExtensions } from './procedures.ts'
import { type Rows, reload } from './rows.ts'

// The options of mutations that most resources have. Each calls its procedure.

type Caller = GraphQLContext['caller']
type ById = { id: z.ZodType<string, string> }

/** Returns the options of a mutation that writes an input and returns the row that the procedure names. */
export const writeRow = <Row extends object, Input>(
  type: ObjectRef<Types, Row>,
  rows: Rows<Row>,
  procedure: AnyProcedure,
  input: InputRef<Input>,
  write: (caller: Caller, input: Input) => Promise<{ id: string }>,
) => ({
  ...procedureExtensions(procedure),
  type,
  args: builder.args((t) => ({ input: t.field({ type: input, required: true }) })) as {
    input: ArgumentRef<Types, Input>
  },
  async resolve(_: unknown, { input: given }: { input: Input }, context: GraphQLContext, info: GraphQLResolveInfo) {
    const { id } = await write(context.caller, given)
    return (await reload(context, info, rows, id)) as never
  },
})

/** Returns the options of a mutation that changes the row with the id among its arguments, and returns it. */
export const changeRow = <Row extends object, Shape extends z.ZodRawShape & ById>(
  type: ObjectRef<Types, Row>,
  rows: Rows<Row>,
  procedure: AnyProcedure,
  input: z.ZodObject<Shape>,
  change: (caller: Caller, args: z.input<z.ZodObject<Shape>>) => Promise<unknown>,
) => ({
  ...procedureExtensions(procedure),
  type,
  args: argsFromZod(input),
  async resolve(_: unknown, args: object, context: GraphQLContext, info: GraphQLResolveInfo) {
    await change(context.caller, args as z.input<z.ZodObject<Shape>>)
    return (await reload(context, info, rows, (args as { id: string }).id)) as never
  },
})

/** Returns the options of a mutation that deletes the object with the id among its arguments. */
export const deleteRow = (
  procedure: AnyProcedure,
  input: z.ZodObject<ById>,
  remove: (caller: Caller, args: { id: string }) => Promise<{ message: string }>,
) => ({
  ...procedureExtensions(procedure),
  type: Deletion,
  args: argsFromZod(input),
  resolve: async (_: unknown, args: { id: string }, { caller }: GraphQLContext) => ({
    deletedId: args.id,
    ...(await remove(caller, args)),
  }),
})

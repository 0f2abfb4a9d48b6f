import { queryFromInfo } from '@pothos/plugin-prisma'
import type { GraphQLResolveInfo } from 'graphql'
import type { GraphQLContext } from './builder.ts'

/**
 * What the caller selected of a type's rows, for resolvers that are no `prismaField`: of the field itself, or of what
 * lies under `path`. `columns` come with it, for the resolver's own use.
 */
export const selectRows = <const Columns extends Record<string, true>>(
  context: GraphQLContext,
  info: GraphQLResolveInfo,
  { type, path = [], columns }: { type: string; path?: string[]; columns: Columns },
) => queryFromInfo({ context, info, typeName: type, path, select: columns }) as { select: Columns }

import { type FieldNode, type OperationDefinitionNode, valueFromASTUntyped } from 'graphql'

/** Values as the client wrote them, of documents that may not be valid. */
export type Values = Readonly<Record<string, unknown>>

/** The variables of an operation: those that were sent, and its defaults for the rest. */
export const variablesOf = ({ variableDefinitions = [] }: OperationDefinitionNode, sent: Values): Values => ({
  ...Object.fromEntries(
    variableDefinitions.flatMap(({ variable, defaultValue }) =>
      defaultValue ? [[variable.name.value, valueFromASTUntyped(defaultValue)]] : [],
    ),
  ),
  ...sent,
})

/** The arguments that a field is given. */
export function argumentsOf({ arguments: given = [] }: FieldNode, variables: Values): Values {
  // No variable is there by being named like something of every object's.
  const known = Object.assign(Object.create(null), variables)
  return Object.fromEntries(given.map(({ name, value }) => [name.value, valueFromASTUntyped(value, known)]))
}

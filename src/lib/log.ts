import { type DestinationStream, type Logger, pino, stdSerializers } from 'pino'
import { describeDatabaseError } from './database-errors.ts'

const serializers = { err: (error: Error) => describeDatabaseError(error) ?? stdSerializers.err(error) }

/** The log: lines of JSON, by default on stdout. Of errors of the database it has no texts: they repeat its values. */
export const createLog = (level: string, destination: DestinationStream = pino.destination(1)): Logger =>
  pino({ level, serializers }, destination)

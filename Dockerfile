# Builds the console. Its tools stay in this stage.
FROM node:24-trixie-slim AS console
WORKDIR /app
COPY package.json package-lock.json .npmrc tsconfig.json ./
RUN npm ci --ignore-scripts
COPY .config .config
COPY src src
RUN node -e "import('./.config/build-console.ts').then(({ buildConsole }) => buildConsole(new URL('file:///app/dist/console/')))"

# Installs and generates. Its tools stay in this stage.
FROM node:24-trixie-slim AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# Optional packages are Node itself, which is here already. No install script is run, and no compiler needed.
RUN npm ci --omit=dev --omit=optional --ignore-scripts
COPY .config .config
COPY prisma prisma
COPY src src
COPY --from=console /app/dist/console dist/console
RUN node .config/guard.js
# The generators are half of all packages, and a running server does not need them.
RUN npm pkg delete dependencies.prisma && npm prune --omit=dev --omit=optional --ignore-scripts
# Otherwise the first start of each container would compile all code. Node writes one cache per user, readable by that user only.
RUN mkdir -p node_modules/.cache/muster && chown node node_modules/.cache/muster
USER node
RUN npm run -s --ignore-scripts compile && chmod -R a+rX node_modules/.cache/muster

FROM node:24-trixie-slim
# Git fills a space from a repository.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates git && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY --from=build /app/node_modules node_modules
COPY --from=build /app/prisma prisma
COPY --from=build /app/src src
COPY --from=build /app/dist dist
COPY --from=build /app/package.json ./
COPY LICENSE ./
ENV NODE_ENV=production HOST=0.0.0.0 PORT=3000 DATA_DIR=/data
RUN mkdir /data && chown node:node /data
USER node
VOLUME /data
EXPOSE 3000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --start-interval=1s \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT}/readyz`).then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
# By default, Node's heap may become larger than a container of 256 MB, which the kernel would end.
CMD ["node", "--max-old-space-size-percentage=45", "--max-semi-space-size=8", "--heap-growing-percent=150", "--v8-pool-size=1", "src/main.js"]

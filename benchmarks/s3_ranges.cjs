// Loaded into s3rver 3.7.1, which answers a request for the last bytes of an object ("bytes=-N") with the first ones.
const { realpathSync } = require("node:fs");
const { createRequire } = require("node:module");

const controller = createRequire(realpathSync(process.argv[1]))("../lib/controllers/object");
const getObject = controller.getObject;
controller.getObject = async (ctx) => {
  const last = /^bytes=-(\d+)$/.exec(ctx.headers.range ?? "");
  if (last) {
    const metadata = await ctx.store.getMetadata(ctx.params.bucket, ctx.params.key);
    ctx.headers.range = `bytes=${Math.max(0, metadata["content-length"] - last[1])}-`;
  }
  return getObject(ctx);
};

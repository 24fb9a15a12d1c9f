import e2bctl from "./index.cjs";

export const { binary, localCloud } = e2bctl;

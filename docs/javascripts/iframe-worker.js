// A site that is read from a disk has a search too: browsers start no worker of a file, so its
// script runs in a hidden frame of the page, and both sides hand their messages on as events.
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inner = frame.contentWindow;
      const load = (source) =>
        new Promise((done, failed) => {
          const script = this.inner.document.createElement("script");
          script.src = source;
          script.onload = done;
          script.onerror = () => failed(new Error(`${source} cannot be read`));
          this.inner.document.head.append(script);
        });
      this.inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inner.importScripts = (...sources) =>
        sources.reduce((before, each) => before.then(() => load(each)), Promise.resolve());
      this.loaded = load(url);
    }

    postMessage(data) {
      this.loaded.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}

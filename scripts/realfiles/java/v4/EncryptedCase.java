import java.io.File;
import java.nio.charset.StandardCharsets;
import org.apache.tsfile.common.conf.TSFileConfig;
import org.apache.tsfile.common.conf.TSFileDescriptor;
import org.apache.tsfile.encrypt.EncryptParameter;
import tsferry.realfiles.Aes;

/** A file with encrypted pages. The library brings no cipher of its own: it calls ours. */
final class EncryptedCase {
  private static final byte[] KEY = "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);

  private EncryptedCase() {}

  static void make(File path, File rows) throws Exception {
    TSFileConfig config = TSFileDescriptor.getInstance().getConfig();
    config.setEncryptType(Aes.class.getName());
    config.setEncryptKey(KEY);
    try {
      TabletCase.encrypted(path, rows, new EncryptParameter(Aes.class.getName(), KEY));
    } finally {
      config.setEncryptType("org.apache.tsfile.encrypt.UNENCRYPTED");
    }
  }
}

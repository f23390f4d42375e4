import java.io.IOException;
import org.apache.tsfile.write.writer.TsFileIOWriter;

/** This generation of the library has no aligned devices. */
final class AlignedDevice {
  static final boolean EXISTS = false;

  private AlignedDevice() {}

  static void write(TsFileIOWriter file, String device, AlignedGroup group) throws IOException {
    throw new UnsupportedOperationException(device);
  }
}
